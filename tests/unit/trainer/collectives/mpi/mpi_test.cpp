#include "trainer/collectives/mpi/mpi.h"

#include <fmt/format.h>

#include <cstring>
#include <span>
#include <string>
#include <vector>

#include <doctest/doctest.h>

namespace trainer {
namespace {

/// An MPI of two ranks whose other rank has this one's values. What is under way is done by the
/// second test(), as on a network.
struct Doubling {
  std::vector<std::string> calls;
  std::size_t tests = 0;
};

Doubling* state = nullptr; // A table of C functions has nowhere else to keep it.

int initialize(int* rank, int* world_size) {
  *rank = 0;
  *world_size = 2;
  return 0;
}
int finalize() { return 0; }
int library(char* text, std::size_t) {
  std::strcpy(text, "a test");
  return 0;
}
void error_text(int, char*, std::size_t) {}
int all_to_all(const void* from, const int* from_counts, const int* from_places, void* to,
               const int* to_counts, const int* to_places, void** request) {
  state->calls.push_back(fmt::format("to all {} bytes", from_counts[1]));
  // What the other rank has of this one's chunk: the same, which begins at 0.
  (void)from_places;
  std::memcpy(static_cast<char*>(to) + to_places[1], from, static_cast<std::size_t>(to_counts[1]));
  *request = state;
  return 0;
}
int all_gather(void* in_place, const int* counts, const int* places, int second, void** request) {
  state->calls.push_back(
      fmt::format("gather {} bytes{}", counts[0] + counts[1], second != 0 ? ", second" : ""));
  auto* const bytes = static_cast<char*>(in_place); // Its values all are alike.
  std::memcpy(bytes + places[1], bytes, static_cast<std::size_t>(counts[1]));
  *request = state;
  return 0;
}
int broadcast(void*, std::size_t, int, void** request) {
  *request = state;
  return 0;
}
int barrier(void** request) {
  *request = state;
  return 0;
}
int test(void*, int* done) {
  *done = ++state->tests % 2 == 0 ? 1 : 0;
  return 0;
}

const DtrainMpi k_table = {k_dtrain_mpi_version, initialize, finalize,  library, error_text,
                           all_to_all,           all_gather, broadcast, barrier, test};

TEST_CASE("MPI carries 16-bit values where they are to travel as such, and floats come back") {
  Doubling doubling;
  state = &doubling;
  Health health(0, {Introduction{}}, std::vector<Fd>(1), {});
  const auto transport = make_mpi(std::make_unique<Mpi>(k_table), health);
  constexpr std::size_t k_count = 1024;
  for (const WireType wire : {WireType::bf16, WireType::fp16}) {
    CAPTURE(wire_type_name(wire));
    std::vector<float> first(k_count, 1.0F + 0x1p-5F);
    std::vector<float> second(k_count / 2, 3.0F + 0x1p-20F); // Rounded off on its way.
    doubling.calls.clear();
    std::uint64_t last = 0;
    for (std::vector<float>* one : {&first, &second}) {
      last = transport->start({Collective::Kind::all_reduce, *one, 0, "gradient", wire});
    }
    transport->finish(last);
    CHECK(first == std::vector<float>(k_count, 2.0F + 0x1p-4F));
    CHECK(second == std::vector<float>(k_count / 2, 6.0F));
    CHECK(doubling.calls == std::vector<std::string>{"to all 1024 bytes", "to all 512 bytes",
                                                     "gather 2048 bytes, second",
                                                     "gather 1024 bytes, second"});
  }
  doubling.calls.clear();
  std::vector<float> whole(k_count, 1.0F);
  transport->carry_out({Collective::Kind::reduce_scatter, whole, 0, "gradient"});
  CHECK(whole.front() == 2.0F);
  transport->carry_out({Collective::Kind::all_gather, whole, 0, "parameters"});
  CHECK(whole == std::vector<float>(k_count, 2.0F));
  CHECK(doubling.calls == std::vector<std::string>{"to all 2048 bytes", "gather 4096 bytes"});
  health.leave(false);
}

} // namespace
} // namespace trainer
