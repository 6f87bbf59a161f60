#include "trainer/collectives/nccl/nccl_group.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <utility>

#include <fmt/format.h>

#include "trainer/clock.h"
#include "trainer/errors.h"

namespace trainer {
namespace {

constexpr std::chrono::milliseconds k_watch_interval{50};     ///< Interval of the watching thread.
constexpr std::chrono::milliseconds k_connecting_interval{1}; ///< and while NCCL connects.
/// Time for the heartbeat to name the rank that NCCL lost.
constexpr double k_nccl_verdict_seconds = 2;
constexpr std::size_t k_nccl_text = 512;

/// Environment variables of NCCL that decide which path data take, if they are set.
std::string settings_text() {
  std::string text;
  for (const char* name :
       {"NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL", "NCCL_NET_GDR_LEVEL", "NCCL_NET_GDR_READ",
        "NCCL_IB_DISABLE", "NCCL_IB_HCA", "NCCL_SOCKET_IFNAME", "NCCL_ALGO", "NCCL_PROTO"}) {
    if (const char* value = std::getenv(name); value != nullptr) {
      text += fmt::format("; {}={}", name, value);
    }
  }
  return text.empty() ? "; GPUDirect as NCCL finds it" : text;
}

} // namespace

/// A replica's part.
struct NcclGroup::Member {
  struct Memory {
    Buffer buffer; ///< allocate_on_device()'s.
    std::span<float> span;
    void* handle; ///< NCCL's; null: it is not registered.
  };

  explicit Member(CudaDevice& gpu_) : gpu(gpu_), stream(gpu_.make_stream()) {}

  CudaDevice& gpu;
  NcclRank rank{};
  std::unique_ptr<Stream> stream;
  std::list<Memory> memory;
  std::uint64_t started = 0; ///< Collectives.

  /// 16-bit values, for one collective at a time: they share a stream.
  Buffer halves{nullptr, 0, DType::u8, {}, {}};
  void* room_for(std::size_t values) {
    if (halves.size() < values * wire_size(WireType::bf16)) {
      halves = gpu.allocate(values * wire_size(WireType::bf16), DType::u8);
    }
    return halves.memory();
  }
};

/// A collective of all replicas.
struct NcclGroup::Launch {
  std::vector<Collective> parts; ///< A replica's each, once it has started.
  std::size_t started = 0;
  std::vector<std::unique_ptr<Event>> done; ///< For each replica, once it is on the streams.
  std::uint64_t elsewhere = 0;              ///< Its number in the heartbeat's log.
};

NcclGroup::NcclGroup(const DtrainNccl& nccl, const std::vector<CudaDevice*>& gpus,
                     Communicator& between, double timeout)
    : nccl_(nccl), between_(between), exceptions_(std::uncaught_exceptions()) {
  NcclId id{};
  int error = between.rank() == 0 ? nccl.make_id(&id) : 0;
  between.broadcast(std::as_writable_bytes(std::span(&id, 1)), 0, "NCCL's id");
  std::vector<NcclRank> ranks;
  for (CudaDevice* gpu : gpus) {
    Member& member = *members_.emplace_back(std::make_unique<Member>(*gpu));
    ranks.push_back(
        {between.rank() * static_cast<int>(gpus.size()) + static_cast<int>(ranks.size()),
         member.gpu.index(), nullptr});
  }
  if (error == 0) {
    error = nccl.connect(&id, world_size(), ranks.data(), ranks.size());
  }
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    members_[i]->rank = ranks[i];
  }
  Lock lock(mutex_);
  try {
    if (error != 0 && error != k_nccl_in_progress) {
      throw PeerError(what_is_wrong(error, *members_.front()));
    }
    const Deadline deadline = after_seconds(timeout);
    for (const auto& member : members_) {
      int state = nccl.state(member->rank.comm);
      for (; state == k_nccl_in_progress; state = nccl.state(member->rank.comm)) {
        between.check();
        if (Clock::now() > deadline) {
          throw PeerError(fmt::format(
              "NCCL has not connected the ranks within {:g} s; run with NCCL_DEBUG=INFO to see why",
              timeout));
        }
        changed_.wait_for(lock, k_connecting_interval);
      }
      if (state != 0) {
        throw PeerError(what_is_wrong(state, *member));
      }
    }
  } catch (const PeerError& failed) {
    fail_with(failed.what(), lock);
    throw;
  }
  watch_ = std::thread([this] { watch(); });
}

NcclGroup::~NcclGroup() {
  Lock lock(mutex_);
  if (std::uncaught_exceptions() > exceptions_) {
    fail_with("this rank gave up", lock);
  }
  lock.unlock();
  try {
    for (const auto& member : members_) {
      member->stream->record()->wait(); // The thread still watches, and aborts what breaks.
    }
    lock.lock();
    retire();
    lock.unlock();
  } catch (const Error&) { // The reason is thrown where its results are read.
    if (!lock.owns_lock()) {
      lock.lock();
    }
    fail_with("a GPU failed", lock);
    lock.unlock();
  }
  lock.lock();
  is_over_ = true;
  changed_.notify_all();
  lock.unlock();
  watch_.join();
  for (const auto& member : members_) {
    if (member->rank.comm != nullptr) {
      for (const Member::Memory& memory : member->memory) {
        if (memory.handle != nullptr) {
          nccl_.remove_memory(member->rank.comm, memory.handle);
        }
      }
      nccl_.destroy(member->rank.comm);
    }
  }
}

int NcclGroup::world_size() const {
  return between_.world_size() * static_cast<int>(members_.size());
}

std::string NcclGroup::describe() const {
  return fmt::format("NCCL {}.{}.{}, {} ranks{}", nccl_.version / 10000, nccl_.version / 100 % 100,
                     nccl_.version % 100, world_size(), settings_text());
}

std::string NcclGroup::what_is_wrong(int error, const Member& member) const {
  std::array<char, k_nccl_text> text{};
  nccl_.text(error, member.rank.comm, text.data(), text.size());
  return fmt::format("NCCL on gpu:{} of {}: {}", member.gpu.index(), between_.name(between_.rank()),
                     text.data());
}

void NcclGroup::check_failure() const {
  if (!failure_.empty()) {
    throw PeerError(failure_);
  }
}

void NcclGroup::check() {
  const Lock lock(mutex_);
  check_failure();
}

void NcclGroup::fail(const std::string& why) noexcept {
  Lock lock(mutex_);
  fail_with(why, lock);
}

/// Aborts what is under way.
void NcclGroup::fail_with(const std::string& why, Lock& /*lock*/) {
  if (failure_.empty()) {
    failure_ = why;
    for (const auto& member : members_) {
      if (member->rank.comm != nullptr) {
        nccl_.abort(std::exchange(member->rank.comm, nullptr));
      }
    }
  }
  changed_.notify_all();
}

void NcclGroup::watch() {
  Deadline verdict = Clock::time_point::max();
  std::string wrong;
  Lock lock(mutex_);
  try {
    for (; !is_over_ && failure_.empty(); changed_.wait_for(lock, k_watch_interval)) {
      between_.check();
      for (const auto& member : members_) {
        const int state = nccl_.state(member->rank.comm);
        if (state != 0 && state != k_nccl_in_progress && wrong.empty()) {
          wrong = what_is_wrong(state, *member);
          verdict = after_seconds(k_nccl_verdict_seconds);
        }
      }
      if (Clock::now() > verdict) {
        throw PeerError(wrong);
      }
      retire();
    }
  } catch (const Error& error) {
    fail_with(error.what(), lock);
  }
}

/// Retires those that are done on all GPUs, oldest first.
void NcclGroup::retire() {
  const auto is_done = [](const Launch& one) {
    return !one.done.empty() && std::all_of(one.done.begin(), one.done.end(),
                                            [](const auto& event) { return event->has_passed(); });
  };
  for (; !launches_.empty() && is_done(*launches_.front()); ++retired_) {
    if (members_.size() == 1) {
      between_.end_elsewhere(launches_.front()->elsewhere);
    }
    launches_.pop_front();
  }
}

std::span<float> NcclGroup::allocate(std::size_t replica, std::size_t count) {
  Member& member = *members_[replica];
  Buffer buffer = member.gpu.allocate(count, DType::f32);
  const Lock lock(mutex_);
  check_failure();
  void* handle = nullptr;
  if (const int error =
          nccl_.add_memory(member.rank.comm, buffer.memory(), buffer.bytes(), &handle);
      error != 0) {
    throw PeerError(what_is_wrong(error, member));
  }
  const std::span<float> span = buffer.span();
  member.memory.push_back({std::move(buffer), span, handle});
  return span;
}

void NcclGroup::use(std::size_t replica, std::span<float> memory) {
  const Lock lock(mutex_);
  members_[replica]->memory.push_back({Buffer(0), memory, nullptr});
}

std::uint64_t NcclGroup::start(std::size_t replica, const Collective& collective) {
  Member& member = *members_[replica];
  member.stream->wait(*member.gpu.stream().record());
  if (collective.after != nullptr) {
    member.stream->wait(*collective.after);
  }
  Lock lock(mutex_);
  check_failure();
  const std::uint64_t number = member.started++;
  while (launches_.size() <= number - retired_) {
    launches_.emplace_back(std::make_unique<Launch>())->parts.resize(members_.size());
  }
  Launch& one = *launches_[number - retired_];
  one.parts[replica] = collective;
  if (++one.started == members_.size()) {
    launch(one, lock);
  }
  return number;
}

/// All replicas have reached it.
void NcclGroup::launch(Launch& one, Lock& lock) {
  for (const Collective& part : one.parts) {
    if (part.range.count() != one.parts.front().range.count() ||
        part.range.dtype() != one.parts.front().range.dtype() ||
        part.kind != one.parts.front().kind) {
      fail_with(fmt::format("the replicas' collectives differ: {} and {}", one.parts.front().text(),
                            part.text()),
                lock);
      check_failure();
    }
  }
  if (members_.size() == 1) { // Otherwise the replicas' threads take turns at `between_`.
    one.elsewhere = between_.begin_elsewhere(one.parts.front());
  }
  std::vector<NcclCall> calls;
  for (std::size_t replica = 0; replica < members_.size(); ++replica) {
    add_calls(*members_[replica], one.parts[replica], calls);
  }
  const int error = nccl_.put(calls.data(), calls.size());
  if (error != 0 && error != k_nccl_in_progress) {
    fail_with(what_is_wrong(error, *members_.front()), lock);
    check_failure();
  }
  for (const auto& member : members_) { // Until then nothing need be on the stream.
    while (failure_.empty() && nccl_.state(member->rank.comm) == k_nccl_in_progress) {
      changed_.wait_for(lock, k_connecting_interval);
    }
    check_failure();
  }
  for (std::size_t replica = 0; replica < members_.size(); ++replica) {
    Member& member = *members_[replica];
    const Collective& part = one.parts[replica];
    if (part.wire != WireType::fp32) {
      member.gpu.kernels().widen(*member.stream, part.range.count(), dtype_of(part.wire),
                                 member.halves.memory(),
                                 reinterpret_cast<float*>(part.range.data()));
    }
    one.done.push_back(member.stream->record());
  }
  changed_.notify_all();
}

/// reduce_scatter and all_gather have a call a rank where chunks are not of one length.
void NcclGroup::add_calls(Member& member, const Collective& collective,
                          std::vector<NcclCall>& calls) const {
  using Op = NcclCall::Op;
  const Range& range = collective.range;
  const std::size_t count = range.count();
  DType dtype = range.dtype();
  std::byte* memory = range.data();
  if (collective.wire != WireType::fp32) {
    dtype = dtype_of(collective.wire);
    auto* const halves = static_cast<std::byte*>(member.room_for(count));
    member.gpu.kernels().narrow(*member.stream, count, dtype, reinterpret_cast<float*>(memory),
                                halves);
    memory = halves;
  }
  NcclCall call{Op::all_reduce, member.rank.comm, member.stream.get(), memory, count,
                dtype,          collective.root};
  if (collective.kind == Collective::Kind::all_reduce ||
      collective.kind == Collective::Kind::broadcast) {
    call.op = collective.kind == Collective::Kind::broadcast ? Op::broadcast : Op::all_reduce;
    calls.push_back(call);
    return;
  }
  const bool gathers = collective.kind == Collective::Kind::all_gather;
  const Chunks chunks(collective, world_size());
  if (chunks.size(world_size() - 1) == chunks.length()) {
    call.op = gathers ? Op::all_gather : Op::reduce_scatter;
    call.count = chunks.length();
    call.root = member.rank.rank; // Whose chunk is its own.
    calls.push_back(call);
    return;
  }
  call.op = gathers ? Op::broadcast : Op::reduce;
  for (int rank = 0; rank < world_size(); ++rank) {
    call.root = rank;
    call.memory = memory + chunks.begin(rank) * size_of(dtype);
    call.count = chunks.size(rank);
    if (call.count > 0) {
      calls.push_back(call);
    }
  }
}

void NcclGroup::wait_in(std::size_t replica, Stream& stream, std::uint64_t number) {
  Lock lock(mutex_);
  const auto is_behind = [&] { return number < retired_; }; // Long done.
  changed_.wait(lock, [&] {
    return !failure_.empty() || is_behind() || !launches_[number - retired_]->done.empty();
  });
  check_failure();
  if (!is_behind()) {
    stream.wait(*launches_[number - retired_]->done[replica]);
  }
}

bool NcclCommunicator::is_on_device(const Range& range) const {
  const auto& memory = group_.members_[replica_]->memory;
  return std::any_of(memory.begin(), memory.end(),
                     [&](const auto& one) { return range.begins_in(one.span); });
}

Communicator::Ticket NcclCommunicator::start(Collective collective) {
  const bool on_device = is_on_device(collective.range);
  under_way_.push_back(
      {next_, on_device,
       on_device ? group_.start(replica_, collective) : inner().start(std::move(collective))});
  return next_++;
}

void NcclCommunicator::wait(Ticket ticket) {
  wait_in(group_.members_[replica_]->gpu.stream(), ticket);
}

void NcclCommunicator::wait_in(Stream& stream, Ticket ticket) {
  for (; !under_way_.empty() && under_way_.front().ticket <= ticket; under_way_.pop_front()) {
    const Call& call = under_way_.front();
    call.is_on_device ? group_.wait_in(replica_, stream, call.number) : inner().wait(call.number);
  }
}

void NcclCommunicator::check() {
  group_.check();
  inner().check();
}

} // namespace trainer
