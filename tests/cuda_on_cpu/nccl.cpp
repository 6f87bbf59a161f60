// NCCL as tests have it where there is no GPU, behind its table: ranks are threads or
// processes of one machine, which find each other by a folder that the id names. What a rank brings
// to a collective is a file there, and a collective is done on a rank's stream when all have
// brought theirs, as late as NCCL's own.
//
// Wrong use ends the program: a communicator that is not connected yet or no more, memory or a
// stream of another GPU than its own, a group in which ranks' calls are not the same ones in the
// same order, an end while something is under way.
//
// DTRAIN_FAKE_NCCL says which version it is (23007; 0: there is none).
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include <unistd.h>

#include "tests/cuda_on_cpu/runtime.h"
#include "trainer/device/cuda/kernels.h"
#include "trainer/device/halves.h"

namespace cuda_on_cpu {
namespace {

using namespace trainer;
namespace fs = std::filesystem;

constexpr int k_asked_before_connected = 2; ///< It takes its time, as NCCL does.

struct Comm {
  fs::path folder;
  int world_size = 0;
  int rank = 0;
  int gpu = 0;
  int asked = 0;
  std::uint64_t put = 0;  ///< Collectives,
  std::uint64_t done = 0; ///< and those that have been carried out.
  std::atomic<bool> is_aborted = false;
  std::set<void*> memory; ///< Handles.
};
using CommHandle = std::shared_ptr<Comm>;

std::mutex& mutex() {
  static std::mutex one;
  return one;
}
std::set<CommHandle*>& comms() {
  static std::set<CommHandle*> all;
  return all;
}

Comm& comm_of(void* comm) {
  auto* handle = static_cast<CommHandle*>(comm);
  if (comms().count(handle) == 0) {
    fail("a communicator that there is not");
  }
  return **handle;
}

fs::path file_of(const Comm& comm, const std::string& what, int rank) {
  return comm.folder / (what + "-" + std::to_string(rank));
}

/// All of it at once, for whoever looks.
void write_file(const fs::path& path, const std::vector<char>& bytes) {
  const fs::path part = path.string() + ".part";
  std::ofstream(part, std::ios::binary)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  std::error_code gone; // The folder, where another rank has aborted.
  fs::rename(part, path, gone);
}

std::vector<char> read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

bool all_have(const Comm& comm, const std::string& what) {
  for (int rank = 0; rank < comm.world_size; ++rank) {
    if (!fs::exists(file_of(comm, what, rank))) {
      return false;
    }
  }
  return true;
}

void text(int error, void* /*comm*/, char* to, std::size_t size) {
  (void)std::snprintf(to, size, "error %d of a NCCL in tests", error);
}

int make_id(NcclId* id) {
  static std::atomic<int> made{0};
  *id = {};
  (void)std::snprintf(id->bytes, sizeof id->bytes, "%s/dtrain-nccl-%d-%d",
                      fs::temp_directory_path().c_str(), static_cast<int>(getpid()), ++made);
  fs::create_directory(id->bytes);
  return 0;
}

int connect(const NcclId* id, int world_size, NcclRank* ranks, std::size_t count) {
  const std::lock_guard lock(mutex());
  for (std::size_t i = 0; i < count; ++i) {
    auto* made = new CommHandle(std::make_shared<Comm>());
    Comm& one = **made;
    one.folder = id->bytes;
    one.world_size = world_size;
    one.rank = ranks[i].rank;
    one.gpu = ranks[i].gpu;
    comms().insert(made);
    write_file(file_of(one, "here", one.rank), {});
    ranks[i].comm = made;
  }
  return k_nccl_in_progress;
}

int state_of(Comm& comm) {
  return comm.asked < k_asked_before_connected || !all_have(comm, "here") ? k_nccl_in_progress : 0;
}

int state(void* comm) {
  const std::lock_guard lock(mutex());
  Comm& one = comm_of(comm);
  ++one.asked;
  return state_of(one);
}

Comm& connected(void* comm) {
  Comm& one = comm_of(comm);
  if (state_of(one) != 0) {
    fail("a communicator is used that is not connected yet");
  }
  return one;
}

int add_memory(void* comm, void* memory, std::size_t /*bytes*/, void** handle) {
  const std::lock_guard lock(mutex());
  Comm& one = connected(comm);
  if (!is_on_gpu(one.gpu, memory)) {
    fail("NCCL is told of memory that is not its GPU's");
  }
  *handle = new char;
  one.memory.insert(*handle);
  return 0;
}

int remove_memory(void* comm, void* handle) {
  const std::lock_guard lock(mutex());
  if (comm_of(comm).memory.erase(handle) != 1) {
    fail("NCCL is told twice of memory that goes");
  }
  delete static_cast<char*>(handle);
  return 0;
}

double value_at(const NcclCall& call, const char* bytes, std::size_t i) {
  if (call.dtype == DType::f32) {
    float value = 0;
    std::memcpy(&value, bytes + i * sizeof value, sizeof value);
    return value;
  }
  if (call.dtype == DType::f64) {
    double value = 0;
    std::memcpy(&value, bytes + i * sizeof value, sizeof value);
    return value;
  }
  std::uint16_t half = 0;
  std::memcpy(&half, bytes + i * sizeof half, sizeof half);
  return call.dtype == DType::bf16 ? Bf16::widen(half) : Fp16::widen(half);
}

void set_value(const NcclCall& call, char* bytes, std::size_t i, double sum) {
  if (call.dtype == DType::f64) {
    std::memcpy(bytes + i * sizeof sum, &sum, sizeof sum);
    return;
  }
  const auto value = static_cast<float>(sum);
  const std::uint16_t half = call.dtype == DType::bf16 ? Bf16::narrow(value) : Fp16::narrow(value);
  call.dtype == DType::f32 ? std::memcpy(bytes + i * sizeof value, &value, sizeof value)
                           : std::memcpy(bytes + i * sizeof half, &half, sizeof half);
}

/// What ranks must agree on, before what each of them brings.
struct Head {
  std::uint64_t op, count, dtype, root;
};

/// Once all ranks' files are there.
void carry_out(const Comm& comm, const NcclCall& call, const std::string& name) {
  const std::size_t bytes = call.count * size_of(call.dtype);
  std::vector<std::vector<char>> all;
  for (int rank = 0; rank < comm.world_size; ++rank) {
    all.push_back(read_file(file_of(comm, name, rank)));
    if (all.back().size() < sizeof(Head) ||
        std::memcmp(all.back().data(), all.front().data(), sizeof(Head)) != 0) {
      fail("the ranks' collectives differ");
    }
  }
  using Op = NcclCall::Op;
  auto* const to = static_cast<char*>(call.memory);
  const auto part = [&](std::size_t rank) { return all[rank].data() + sizeof(Head); };
  const auto own = static_cast<std::size_t>(comm.rank);
  if (call.op == Op::broadcast) {
    std::memcpy(to, part(static_cast<std::size_t>(call.root)), bytes);
  } else if (call.op == Op::all_gather) {
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      std::memcpy(to + rank * bytes, part(rank) + rank * bytes, bytes);
    }
  } else if (call.op != Op::reduce || comm.rank == call.root) {
    const std::size_t first = call.op == Op::reduce_scatter ? own * call.count : 0;
    for (std::size_t i = first; i < first + call.count; ++i) {
      double sum = value_at(call, part(0), i);
      for (std::size_t rank = 1; rank < all.size(); ++rank) {
        const double next = sum + value_at(call, part(rank), i);
        sum = call.dtype == DType::f32 ? static_cast<double>(static_cast<float>(next)) : next;
      }
      set_value(call, to, i, sum);
    }
  }
}

/// Of a chunk a rank.
bool is_chunked(const NcclCall& call) {
  return call.op == NcclCall::Op::reduce_scatter || call.op == NcclCall::Op::all_gather;
}

std::size_t values_of(const Comm& comm, const NcclCall& call) {
  return call.count * (is_chunked(call) ? static_cast<std::size_t>(comm.world_size) : 1);
}

int put(const NcclCall* calls, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const std::lock_guard lock(mutex());
    connected(calls[i].comm);
  }
  for (std::size_t i = 0; i < count; ++i) {
    const NcclCall call = calls[i];
    const std::lock_guard lock(mutex());
    Comm& comm = comm_of(call.comm);
    const CudaStreamHandle& stream = *handle_of(*call.stream);
    if (stream.gpu != comm.gpu || !is_on_gpu(comm.gpu, call.memory)) {
      fail("NCCL is given a stream or memory of another GPU");
    }
    comm.asked = 0; // It is in progress again.
    const CommHandle handle = *static_cast<CommHandle*>(call.comm);
    const std::uint64_t number = comm.put++;
    put_until(stream, [handle, call, number] {
      Comm& own = *handle;
      if (own.is_aborted) {
        return true;
      }
      const std::string name = "op-" + std::to_string(number);
      if (own.done == number) { // Brings its part, once.
        ++own.done;
        const Head head{static_cast<std::uint64_t>(call.op), call.count,
                        static_cast<std::uint64_t>(call.dtype),
                        static_cast<std::uint64_t>(is_chunked(call) ? 0 : call.root)};
        const auto* first = static_cast<const char*>(call.memory);
        std::vector<char> bytes(sizeof head);
        std::memcpy(bytes.data(), &head, sizeof head);
        bytes.insert(bytes.end(), first, first + values_of(own, call) * size_of(call.dtype));
        write_file(file_of(own, name, own.rank), bytes);
      }
      if (!all_have(own, name)) {
        return false;
      }
      carry_out(own, call, name);
      if (number > 0) { // All have come to this one, and so are done with the one before.
        fs::remove(file_of(own, "op-" + std::to_string(number - 1), own.rank));
      }
      return true;
    });
  }
  return k_nccl_in_progress;
}

void forget(void* comm) {
  auto* handle = static_cast<CommHandle*>(comm);
  comms().erase(handle);
  delete handle;
}

int abort_comm(void* comm) {
  const std::lock_guard lock(mutex());
  Comm& one = comm_of(comm);
  one.is_aborted = true;
  for (void* handle : one.memory) {
    delete static_cast<char*>(handle);
  }
  std::error_code ignored;
  fs::remove_all(one.folder, ignored);
  forget(comm);
  return 0;
}

int destroy(void* comm) {
  const std::lock_guard lock(mutex());
  Comm& one = connected(comm);
  if (one.done < one.put || !one.memory.empty()) {
    fail("a communicator is destroyed while something is under way, or memory is known to it");
  }
  write_file(file_of(one, "bye", one.rank), {});
  if (all_have(one, "bye")) {
    std::error_code ignored;
    fs::remove_all(one.folder, ignored);
  }
  forget(comm);
  return 0;
}

int version() {
  const char* text = std::getenv("DTRAIN_FAKE_NCCL");
  return text == nullptr ? 23007 : std::atoi(text);
}

} // namespace
} // namespace cuda_on_cpu

const trainer::DtrainNccl* trainer::find_nccl(std::string& why) {
  using namespace cuda_on_cpu;
  static DtrainNccl table = {0,          text,          make_id, connect,    state,
                             add_memory, remove_memory, put,     abort_comm, destroy};
  table.version = version();
  why = "libnccl.so.2: none in this test";
  return table.version == 0 ? nullptr : &table;
}
