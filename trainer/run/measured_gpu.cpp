#include "trainer/run/measured_gpu.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "trainer/clock.h"
#include "trainer/data/xxh64.h"
#include "trainer/device/halves.h"
#include "trainer/device/numa.h"
#include "trainer/random.h"

namespace trainer {
namespace {

/// Prime, so that no two rows of a matrix are alike.
constexpr std::size_t k_factors = 1'000'003;
constexpr std::size_t k_shift_of_b = 314'159; ///< Else B would be A.
constexpr std::uint64_t k_seed = 1;
constexpr std::size_t k_entries = 64; ///< Of the first product, that the host computes, too.
/// In units of the standard deviation of an entry. Sums in float32 are off by less than 1e-4 of it;
/// of bf16 factors each product is exact.
constexpr double k_tolerance = 1e-3;
constexpr std::size_t k_least_a_batch = 8; ///< Products between two waits of the host.
constexpr std::size_t k_most_a_batch = 64;
constexpr double k_seconds_a_batch = 0.1;
constexpr int k_tries = 5;
constexpr int k_copies_a_try = 2;
constexpr std::size_t k_most_copied = std::size_t{32} << 20; ///< Bytes, from GPU to GPU.
constexpr std::size_t k_part = std::size_t{4} << 20; ///< Floats that are digested at a time.

/// Number of the factor that is entry `at` of a matrix.
std::size_t factor_at(std::size_t at, std::size_t shift) { return (at + shift) % k_factors; }

/// Tensor cores are used through cuBLASLt alone, which is also what TF32 needs.
DType best_type(CudaDevice& gpu) {
  const bool has_tensor_cores = gpu.set_matmul_precision(MatmulPrecision::high);
  gpu.set_matmul_precision(MatmulPrecision::highest);
  return has_tensor_cores ? DType::bf16 : DType::f32;
}

/// The driver ranks the links between GPUs that reach each other: NVLink before PCI Express.
std::string kind_of(const CudaDevice& gpu, const CudaDevice& other, bool is_direct) {
  const auto node = numa_node_of(gpu.pci_bus_id());
  const auto other_node = numa_node_of(other.pci_bus_id());
  const bool is_far = node && other_node && node->number != other_node->number;
  const int rank = is_direct ? gpu.link_rank(other) : 0;
  return fmt::format("{}{}{}", is_direct ? "from GPU to GPU" : "through host memory",
                     rank == 0 ? "" : fmt::format(", performance rank {}", rank),
                     is_far ? ", across sockets" : "");
}

} // namespace

CheckFactors::CheckFactors() {
  for (std::size_t i = 0; i < k_factors; ++i) {
    const std::array<std::uint32_t, 4> bits =
        random_at(k_seed, RandomStream::synthetic_data, 0, i / 4);
    halves_.push_back(Bf16::narrow(2 * uniform(bits[i % 4]) - 1));
    floats_.push_back(Bf16::widen(halves_.back()));
  }
}

MeasuredGpu::MeasuredGpu(CudaDevice& gpu, std::size_t n, const CheckFactors& factors,
                         GpuMeasurement& measured)
    : gpu_(gpu), n_(n), factors_(factors), measured_(measured), type_(best_type(gpu)),
      a_(gpu.allocate(n * n, type_)), b_(gpu.allocate(n * n, type_)),
      first_(gpu.allocate(n * n, DType::f32)), c_(gpu.allocate(n * n, DType::f32)),
      sums_(gpu.allocate(k_most_a_batch * sizeof(SquareSum), DType::u8)) {
  gpu_.multiply_in(type_);
  measured_.peak = gpu_.peak_flops();
  tile(a_, 0);
  tile(b_, k_shift_of_b);
}

void MeasuredGpu::tile(const Buffer& matrix, std::size_t shift) {
  const std::size_t size = size_of(type_);
  const auto* const factors = type_ == DType::bf16
                                  ? reinterpret_cast<const std::byte*>(factors_.halves().data())
                                  : reinterpret_cast<const std::byte*>(factors_.floats().data());
  for (std::size_t at = 0; at < matrix.size();) {
    const std::size_t first = factor_at(at, shift);
    const std::size_t count = std::min(k_factors - first, matrix.size() - at);
    gpu_.stream().copy(factors + first * size, static_cast<std::byte*>(matrix.memory()) + at * size,
                       count * size);
    at += count;
  }
}

void MeasuredGpu::multiply(const Buffer& to) {
  gpu_.kernels().matmul(
      gpu_.stream(),
      {.m = n_, .n = n_, .k = n_, .is_rounded = type_ != DType::f32, .a = a_, .b = b_, .c = to});
}

void MeasuredGpu::multiply_once() {
  multiply(first_);
  check_entries();
  take_digest();
}

void MeasuredGpu::check_entries() {
  const double deviation = std::sqrt(static_cast<double>(n_)) / 3; // Of n products of factors.
  for (std::size_t i = 0; i < k_entries; ++i) {
    const std::array<std::uint32_t, 4> bits = random_at(k_seed, RandomStream::sampling, 0, i);
    const std::size_t row = bits[0] % n_;
    const std::size_t column = bits[1] % n_;
    double expected = 0;
    for (std::size_t k = 0; k < n_; ++k) {
      expected += double{factors_.floats()[factor_at(row * n_ + k, 0)]} *
                  double{factors_.floats()[factor_at(k * n_ + column, k_shift_of_b)]};
    }
    float is = 0;
    gpu_.stream().copy(first_.data() + row * n_ + column, &is, sizeof is);
    ++measured_.entries;
    // Of a NaN, too.
    measured_.incorrect += std::abs(double{is} - expected) <= k_tolerance * deviation ? 0 : 1;
  }
}

void MeasuredGpu::take_digest() {
  Xxh64 digest(0);
  std::vector<float> part(std::min(k_part, first_.size()));
  for (std::size_t at = 0; at < first_.size(); at += part.size()) {
    const std::size_t count = std::min(part.size(), first_.size() - at);
    gpu_.stream().copy(first_.data() + at, part.data(), count * sizeof(float));
    digest.add({reinterpret_cast<const std::uint8_t*>(part.data()), count * sizeof(float)});
  }
  measured_.digest = digest.digest();
}

void MeasuredGpu::subtract(std::size_t count, const float* first, float* at, SquareSum* sum) {
  gpu_.kernels().blend(gpu_.stream(), count, 1, first, -1, at);
  gpu_.kernels().squares(gpu_.stream(), count, at, 0, sum);
}

void MeasuredGpu::multiply_for(double seconds) {
  auto* const sums = static_cast<SquareSum*>(sums_.memory());
  std::vector<SquareSum> differences(k_most_a_batch);
  std::vector<double> took;
  std::size_t batch = k_least_a_batch;
  const double started = now();
  do {
    std::vector<std::pair<std::unique_ptr<Event>, std::unique_ptr<Event>>> times;
    for (std::size_t i = 0; i < batch; ++i) {
      auto begin = gpu_.stream().record_timed();
      multiply(c_);
      times.emplace_back(std::move(begin), gpu_.stream().record_timed());
      subtract(c_.size(), first_.data(), c_.data(), sums + i);
    }
    gpu_.stream().copy(sums, differences.data(), batch * sizeof(SquareSum));
    for (const auto& [begin, end] : times) {
      took.push_back(end->seconds_since(*begin));
    }
    measured_.products += batch;
    measured_.changed += static_cast<std::size_t>(std::count_if(
        differences.begin(), differences.begin() + static_cast<std::ptrdiff_t>(batch),
        [](const SquareSum& difference) { return difference.sum != 0; })); // Of a NaN, too.
    const double each = (now() - started) / static_cast<double>(measured_.products);
    batch = std::clamp(static_cast<std::size_t>(k_seconds_a_batch / each), k_least_a_batch,
                       k_most_a_batch);
  } while (now() < started + seconds);
  // The median: a product that begins a batch may wait for the host.
  const auto middle = took.begin() + static_cast<std::ptrdiff_t>(took.size() / 2);
  std::nth_element(took.begin(), middle, took.end());
  const auto n = static_cast<double>(n_);
  measured_.flops = *middle > 0 ? 2 * n * n * n / *middle : 0;
}

template <typename Put>
double MeasuredGpu::seconds_of(const Put& put) {
  double least = 0;
  for (int i = 0; i < k_tries; ++i) {
    const auto begin = gpu_.stream().record_timed();
    for (int copy = 0; copy < k_copies_a_try; ++copy) {
      put();
    }
    const auto end = gpu_.stream().record_timed();
    end->wait();
    const double seconds = end->seconds_since(*begin) / k_copies_a_try;
    least = i == 0 ? seconds : std::min(least, seconds);
  }
  return least;
}

void MeasuredGpu::copy_in_memory() {
  const double seconds =
      seconds_of([&] { gpu_.stream().copy(first_.memory(), c_.memory(), c_.bytes()); });
  measured_.memory_bytes = seconds > 0 ? 2 * static_cast<double>(c_.bytes()) / seconds : 0;
}

void MeasuredGpu::copy_from(MeasuredGpu& other, LinkMeasurement& link) {
  const std::size_t bytes = std::min({a_.bytes(), other.a_.bytes(), k_most_copied});
  const bool is_direct = gpu_.reach(other.gpu_);
  link.kind = kind_of(gpu_, other.gpu_, is_direct);
  gpu_.stream().clear(c_.memory(), bytes);
  gpu_.stream().record()->wait();
  double seconds = 0;
  if (is_direct) {
    seconds = seconds_of([&] { gpu_.stream().copy(other.a_.memory(), c_.memory(), bytes); });
  } else {
    const Buffer host = gpu_.allocate_pinned(bytes, DType::u8);
    seconds = other.seconds_of(
        [&] { other.gpu_.stream().copy(other.a_.memory(), host.memory(), bytes); });
    seconds += seconds_of([&] { gpu_.stream().copy(host.memory(), c_.memory(), bytes); });
    gpu_.stream().record()->wait();
  }
  link.bytes = seconds > 0 ? static_cast<double>(bytes) / seconds : 0;
  if (type_ == other.type_) { // Else their A have other bytes. Pairs of bf16 are read as float32.
    SquareSum difference;
    auto* const sum = static_cast<SquareSum*>(sums_.memory());
    subtract(bytes / sizeof(float), static_cast<const float*>(a_.memory()), c_.data(), sum);
    gpu_.stream().copy(sum, &difference, sizeof difference);
    link.is_intact = difference.sum == 0;
  }
}

} // namespace trainer
