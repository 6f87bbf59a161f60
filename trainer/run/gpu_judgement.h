// Judges measurements of a machine's GPUs: which GPUs compute wrong, and which GPUs and links
// between GPUs are slow. A pure function; check_gpus.h measures.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "trainer/device/device.h"

namespace trainer {

/// A GPU or a link is slow below this share of the fastest of its kind in the machine. Healthy GPUs
/// of one model differ by 5 to 10 % in clock and cooling; a GPU that is throttled or power-capped,
/// or a link of half the width or speed, falls below 70 %.
inline constexpr double k_least_share = 0.7;

inline constexpr double k_teraflop = 1e12;
inline constexpr double k_gigabyte = 1e9;

struct GpuMeasurement {
  std::string name = {};  ///< As CUDA_VISIBLE_DEVICES names it: "0", "GPU-…".
  std::string model = {}; ///< "NVIDIA H100 80GB HBM3"; only GPUs of one model are compared.
  std::string error = {}; ///< Of CUDA; then the rest is not measured. Empty: none.
  double flops = 0;       ///< A second of the median product; 0: not measured.
  PeakFlops peak = {};
  double memory_bytes = 0;  ///< Read and written a second by a copy in its memory; 0: not measured.
  std::uint64_t digest = 0; ///< Of the first product.
  std::size_t products = 0; ///< Repetitions of the first product,
  std::size_t changed = 0;  ///< and those among them with other bits.
  std::size_t entries = 0;  ///< Entries of the first product that the host computed, too,
  std::size_t incorrect = 0; ///< and those among them that differ by more than rounding.
};

/// Copies from one GPU's memory to another's.
struct LinkMeasurement {
  std::size_t from = 0; ///< Index of the GPU.
  std::size_t to = 0;
  std::string kind = {}; ///< Only links of one kind are compared.
  double bytes = 0;      ///< A second; 0: not measured.
  bool is_intact = true; ///< Whether the copy equals what was copied.
  std::string error = {};
};

struct GpuJudgement {
  /// One for each GPU: "GPU 2 (NVIDIA H100): what is wrong; what to do". Empty: none.
  std::vector<std::string> faults;
  /// Of links whose fault is not known to be one GPU's: "GPU 0 to GPU 1: …; what to do".
  std::vector<std::string> links;

  std::vector<std::string> all() const; ///< Faults of GPUs, then of links.
};

/// The first of these that applies to a GPU is its fault: it raised an error; it computed wrong
/// (against the host, against its own first product, against most GPUs of its model, or against the
/// only other one, when both are at fault); it multiplies slowly; its memory is slow; all links to
/// and from it are slow, where there are at least three GPUs.
GpuJudgement judge(const std::vector<GpuMeasurement>& gpus,
                   const std::vector<LinkMeasurement>& links);

} // namespace trainer
