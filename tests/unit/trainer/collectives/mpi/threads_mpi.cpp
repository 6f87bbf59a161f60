#include "threads_mpi.h"

#include <cstring>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

namespace trainer::test {
namespace {

/// What a rank brings to an operation.
struct Brought {
  std::vector<std::vector<char>> to; ///< Each rank.
  bool has_come = false;
};

/// An operation of all ranks.
struct Operation {
  std::vector<Brought> ranks;
  int came = 0;
};

struct World {
  explicit World(int ranks_) : ranks(static_cast<std::size_t>(ranks_)) {}

  const std::size_t ranks;
  std::mutex mutex;
  /// By communicator and number.
  std::map<std::pair<int, std::uint64_t>, Operation> operations;
};

std::unique_ptr<World> world; // A table of C functions has nowhere else to keep it.
thread_local std::size_t own_rank = 0;
thread_local std::uint64_t started[2] = {0, 0};

/// A rank's view of an operation: what to do with what comes.
struct Request {
  std::pair<int, std::uint64_t> key;
  std::vector<char*> into; ///< From each rank; null: nothing is wanted.
  int tests = 0;
};

void start(int communicator, std::vector<std::vector<char>> to, std::vector<char*> into,
           void** request) {
  const std::pair key(communicator, started[communicator]++);
  const std::lock_guard lock(world->mutex);
  Operation& operation = world->operations[key];
  operation.ranks.resize(world->ranks);
  operation.ranks[own_rank] = {std::move(to), true};
  ++operation.came;
  *request = new Request{key, std::move(into)};
}

int initialize(int* rank, int* world_size) {
  *rank = static_cast<int>(own_rank);
  *world_size = static_cast<int>(world->ranks);
  return 0;
}
int finalize() { return 0; }
int library(char* text, std::size_t) {
  std::strcpy(text, "threads");
  return 0;
}
void error_text(int, char* text, std::size_t) { std::strcpy(text, "truncated"); }

std::vector<char> copied(const void* from, int place, int count) {
  const char* const first = static_cast<const char*>(from) + place;
  return {first, first + count};
}

int all_to_all(const void* from, const int* from_counts, const int* from_places, void* to,
               const int* /*to_counts*/, const int* to_places, void** request) {
  std::vector<std::vector<char>> given;
  std::vector<char*> into;
  for (std::size_t rank = 0; rank < world->ranks; ++rank) {
    given.push_back(copied(from, from_places[rank], from_counts[rank]));
    into.push_back(static_cast<char*>(to) + to_places[rank]);
  }
  start(0, std::move(given), std::move(into), request);
  return 0;
}

int all_gather(void* in_place, const int* counts, const int* places, int second, void** request) {
  std::vector<char*> into;
  for (std::size_t rank = 0; rank < world->ranks; ++rank) {
    into.push_back(static_cast<char*>(in_place) + places[rank]);
  }
  const std::vector<char> own = copied(in_place, places[own_rank], counts[own_rank]);
  start(second, std::vector<std::vector<char>>(world->ranks, own), std::move(into), request);
  return 0;
}

int broadcast(void* bytes, std::size_t count, int root, void** request) {
  std::vector<char*> into(world->ranks);
  into[static_cast<std::size_t>(root)] = static_cast<char*>(bytes);
  const bool is_root = own_rank == static_cast<std::size_t>(root);
  const auto own = is_root ? copied(bytes, 0, static_cast<int>(count)) : std::vector<char>();
  start(0, std::vector<std::vector<char>>(world->ranks, own), std::move(into), request);
  return 0;
}

int barrier(void** request) {
  start(0, std::vector<std::vector<char>>(world->ranks), std::vector<char*>(world->ranks), request);
  return 0;
}

int test(void* request, int* done) {
  auto* const own = static_cast<Request*>(request);
  const std::lock_guard lock(world->mutex);
  Operation& operation = world->operations[own->key];
  // As on a network, not at once; and later on some ranks than on others.
  ++own->tests;
  *done =
      operation.came == static_cast<int>(world->ranks) && own->tests > static_cast<int>(own_rank)
          ? 1
          : 0;
  if (*done != 0) {
    for (std::size_t rank = 0; rank < world->ranks; ++rank) {
      const std::vector<char>& arrived = operation.ranks[rank].to[own_rank];
      if (own->into[rank] != nullptr && !arrived.empty()) {
        std::memcpy(own->into[rank], arrived.data(), arrived.size());
      }
    }
    delete own;
  }
  return 0;
}

const DtrainMpi k_table = {k_dtrain_mpi_version, initialize, finalize,  library, error_text,
                           all_to_all,           all_gather, broadcast, barrier, test};

} // namespace

ThreadsMpi::ThreadsMpi(int ranks) { world = std::make_unique<World>(ranks); }
ThreadsMpi::~ThreadsMpi() { world.reset(); }

std::unique_ptr<Mpi> ThreadsMpi::join(int rank) {
  own_rank = static_cast<std::size_t>(rank);
  started[0] = started[1] = 0;
  return std::make_unique<Mpi>(k_table);
}

} // namespace trainer::test
