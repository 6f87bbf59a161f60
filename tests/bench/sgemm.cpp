// GFLOP/s of single-precision matrix products: with OMP_NUM_THREADS=1, what a core gives right now.
// Run before and after a measurement, it tells whether the core was the same throughout.
#include <fmt/core.h>
#include <oneapi/dnnl/dnnl.hpp>

#include <algorithm>
#include <chrono>
#include <vector>

namespace {

/// Best of the repetitions that fit into about a quarter of a second. C (M, N) = A (M, K) · B (K,
/// N)
double best_gflops(dnnl::memory::dim m, dnnl::memory::dim n, dnnl::memory::dim k) {
  using clock = std::chrono::steady_clock;
  const std::vector<float> a(static_cast<std::size_t>(m * k), 1.0F);
  const std::vector<float> b(static_cast<std::size_t>(k * n), 1.0F);
  std::vector<float> c(static_cast<std::size_t>(m * n));
  double best = 0;
  const auto end = clock::now() + std::chrono::milliseconds(250);
  while (clock::now() < end) {
    const auto start = clock::now();
    dnnl::sgemm('N', 'N', m, n, k, 1.0F, a.data(), k, b.data(), n, 0.0F, c.data(), n);
    const std::chrono::duration<double> seconds = clock::now() - start;
    best = std::max(best, 2e-9 * static_cast<double>(m * n * k) / seconds.count());
  }
  return best;
}

} // namespace

int main() {
  fmt::print("{{\"mlp_forward_64\": {:.1f}, \"square_1024\": {:.1f}}}\n", best_gflops(64, 128, 784),
             best_gflops(1024, 1024, 1024));
}
