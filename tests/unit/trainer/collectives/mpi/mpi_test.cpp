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
int sum_floats(float* in_place, std::size_t count, void** request) {
  state->calls.push_back(fmt::format("{} bytes of floats", count * sizeof *in_place));
  *request = state;
  return 0;
}
int sum_halves(std::uint16_t* in_place, std::size_t count, int wire, void** request) {
  state->calls.push_back(fmt::format("{} bytes of {}", count * sizeof *in_place,
                                     wire_type_name(static_cast<WireType>(wire))));
  const WireKernels& kernels = wire_kernels(static_cast<WireType>(wire));
  std::vector<float> own(count);
  kernels.widen(own.data(), in_place, count);
  kernels.add(in_place, in_place, own.data(), count);
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
                           sum_floats,           sum_halves, broadcast, barrier, test};

TEST_CASE("MPI is handed 16-bit values, and their sums come back as floats") {
  Doubling doubling;
  state = &doubling;
  Health health(0, {Introduction{}}, std::vector<Fd>(1), {});
  const auto transport = make_mpi(std::make_unique<Mpi>(k_table), health);
  constexpr std::size_t k_count = 1000;
  for (const WireType wire : {WireType::bf16, WireType::fp16}) {
    CAPTURE(wire_type_name(wire));
    std::vector<float> first(k_count, 1.0F + 0x1p-5F);
    std::vector<float> second(k_count / 2, 3.0F + 0x1p-20F); // Rounded off on its way.
    doubling.calls.clear();
    std::uint64_t last = 0;
    for (std::vector<float>* one : {&first, &second}) {
      last = transport->start({Collective::Kind::all_reduce,
                               std::as_writable_bytes(std::span(*one)), 0, "gradient", wire});
    }
    transport->finish(last);
    CHECK(first == std::vector<float>(k_count, 2.0F + 0x1p-4F));
    CHECK(second == std::vector<float>(k_count / 2, 6.0F));
    const std::string name = wire_type_name(wire);
    CHECK(doubling.calls ==
          std::vector<std::string>{"2000 bytes of " + name, "1000 bytes of " + name});
  }
  doubling.calls.clear();
  std::vector<float> whole(k_count, 1.0F);
  transport->carry_out({Collective::Kind::all_reduce, std::as_writable_bytes(std::span(whole)), 0,
                        "gradient", WireType::fp32});
  CHECK(doubling.calls == std::vector<std::string>{"4000 bytes of floats"});
  health.leave(false);
}

} // namespace
} // namespace trainer
