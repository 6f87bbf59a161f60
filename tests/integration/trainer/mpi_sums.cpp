// Under mpirun: sums of several lengths over MPI, of values that differ by rank, and a line for
// each with what this rank got. The ranks' lines are to be alike.
//
// usage: mpirun -np N mpi-sums
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "trainer/cluster/cluster.h"
#include "trainer/collectives/communicator.h"
#include "trainer/data/xxh64.h"

using namespace trainer;

namespace {

/// Of many sizes and both signs; their sums cancel in part.
float value(int rank, std::size_t i) {
  const auto x = static_cast<float>(i % 7919);
  return std::sin(x * (1.0F + 0.37F * static_cast<float>(rank))) * std::exp2(std::fmod(x, 13.0F));
}

/// The furthest that a sum is from the right one, as a part of what its terms have in size.
double error_of(const std::vector<float>& sums, int ranks) {
  double furthest = 0;
  for (std::size_t i = 0; i < sums.size(); ++i) {
    double sum = 0;
    double sizes = 1e-30;
    for (int rank = 0; rank < ranks; ++rank) {
      sum += static_cast<double>(value(rank, i));
      sizes += std::abs(static_cast<double>(value(rank, i)));
    }
    furthest = std::max(furthest, std::abs(sum - static_cast<double>(sums[i])) / sizes);
  }
  return furthest;
}

} // namespace

int main() {
  try {
    CommOptions options;
    options.communication = CommOptions::Communication::mpi;
    const auto communicator = connect(cluster_from_env(), options);
    for (const WireType wire : {WireType::fp32, WireType::bf16, WireType::fp16}) {
      for (const std::size_t count : {1UL, 17UL, 4097UL, 101770UL, 1048583UL}) {
        std::vector<float> sums(count);
        for (std::size_t i = 0; i < count; ++i) {
          sums[i] = value(communicator->rank(), i);
        }
        std::vector<float> halves = sums;
        communicator->wait(communicator->start_all_reduce(sums, "sums", wire));
        for (const auto half : {Collective::Kind::reduce_scatter, Collective::Kind::all_gather}) {
          communicator->wait(communicator->start(half, halves, "halves", wire));
        }
        if (halves != sums) {
          throw Error(fmt::format("the two halves of a sum of {} differ from it", count));
        }
        const std::span bytes(reinterpret_cast<const std::uint8_t*>(sums.data()),
                              count * sizeof(float));
        fmt::print("{} {} {:016x} {:.6f}\n", wire_type_name(wire), count, xxh64(bytes, 0),
                   error_of(sums, communicator->world_size()));
      }
    }
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "mpi-sums: {}\n", error.what());
    return 1;
  }
}
