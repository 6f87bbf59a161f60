#include "trainer/monitor/figures.h"

#include <fmt/format.h>

#include "trainer/monitor/console.h"

namespace trainer {

std::string figures_text(double samples_per_second, std::size_t tokens, double flops,
                         const Device& device) {
  constexpr double k_tera = 1e12;
  constexpr double k_gib = 1 << 30;
  const double done = samples_per_second * flops;
  const PeakFlops peak = device.peak_flops();
  const std::string speed =
      flops == 0 ? std::string("FLOP/s unknown")
      : peak.a_second == 0
          ? fmt::format("{:.3g} TFLOP/s, its peak unknown", done / k_tera)
          : fmt::format("{:.3g} TFLOP/s, {:.2g} % of its {:.3g} of {}", done / k_tera,
                        100 * done / peak.a_second, peak.a_second / k_tera, peak.type);
  return fmt::format("{} {}/s a device, {}; {:.2f} GiB of its memory at most",
                     with_commas(tokens == 0 ? samples_per_second
                                             : static_cast<double>(tokens) * samples_per_second),
                     tokens == 0 ? "samples" : "tokens", speed,
                     static_cast<double>(device.most_allocated()) / k_gib);
}

} // namespace trainer
