#include "trainer/run/gpu_judgement.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include <fmt/format.h>

namespace trainer {
namespace {

constexpr std::size_t k_least_gpus_for_links = 3; ///< Of two, one's links are the other's.

std::string title(const GpuMeasurement& gpu) {
  return gpu.model.empty() ? fmt::format("GPU {}", gpu.name)
                           : fmt::format("GPU {} ({})", gpu.name, gpu.model);
}

bool is_slow(double rate, double fastest) { return rate > 0 && rate < k_least_share * fastest; }

class Judge {
 public:
  Judge(const std::vector<GpuMeasurement>& gpus, const std::vector<LinkMeasurement>& links)
      : gpus_(gpus), links_(links) {
    judgement_.faults.resize(gpus.size());
  }

  GpuJudgement run() {
    for (std::size_t i = 0; i < gpus_.size(); ++i) {
      judge_results(i);
    }
    compare_results();
    for (std::size_t i = 0; i < gpus_.size(); ++i) {
      judge_speed(i);
    }
    judge_links();
    return std::move(judgement_);
  }

 private:
  void blame(std::size_t gpu, const std::string& what) {
    if (std::string& fault = judgement_.faults[gpu]; fault.empty()) {
      fault = fmt::format("{}: {}", title(gpus_[gpu]), what);
    }
  }

  void judge_results(std::size_t i) {
    const GpuMeasurement& gpu = gpus_[i];
    if (!gpu.error.empty()) {
      blame(i, gpu.error);
    } else if (gpu.incorrect > 0) {
      blame(i, fmt::format("it computes wrong: {} of {} entries of a matrix product differ from "
                           "the CPU's; {}",
                           gpu.incorrect, gpu.entries, k_replace));
    } else if (gpu.changed > 0) {
      blame(i, fmt::format("it computes wrong: {} of {} repetitions of a matrix product gave other "
                           "bits; {}",
                           gpu.changed, gpu.products, k_replace));
    }
  }

  /// GPUs of one model compute the same bits by the same library.
  void compare_results() {
    std::map<std::string, std::map<std::uint64_t, std::vector<std::size_t>>> models;
    for (std::size_t i = 0; i < gpus_.size(); ++i) {
      if (judgement_.faults[i].empty()) {
        models[gpus_[i].model][gpus_[i].digest].push_back(i);
      }
    }
    for (const auto& [model, digests] : models) {
      std::size_t all = 0;
      std::size_t most = 0;
      for (const auto& [digest, which] : digests) {
        all += which.size();
        most = std::max(most, which.size());
      }
      for (const auto& [digest, which] : digests) {
        for (const std::size_t i : which) {
          if (2 * most <= all) {
            blame(i, "its matrix product has other bits than another GPU's of its model, and one "
                     "of them computes wrong; run both alone, and replace the one that fails");
          } else if (which.size() < most) {
            blame(i, fmt::format("it computes wrong: its matrix product has other bits than that "
                                 "of {} GPUs of its model; {}",
                                 most, k_replace));
          }
        }
      }
    }
  }

  /// The fastest of this GPU's model by `rate`.
  double fastest(std::size_t i, double GpuMeasurement::*rate) const {
    double most = 0;
    for (const GpuMeasurement& other : gpus_) {
      most = other.model == gpus_[i].model ? std::max(most, other.*rate) : most;
    }
    return most;
  }

  void judge_speed(std::size_t i) {
    const GpuMeasurement& gpu = gpus_[i];
    if (const double most = fastest(i, &GpuMeasurement::flops); is_slow(gpu.flops, most)) {
      blame(i,
            fmt::format("it is slow: {:.4g} TFLOP/s, where another GPU of its model does {:.4g}; "
                        "see its clocks, temperature and power limit: nvidia-smi -q -i {} -d "
                        "PERFORMANCE, and end other programs on it",
                        gpu.flops / k_teraflop, most / k_teraflop, gpu.name));
    }
    if (const double most = fastest(i, &GpuMeasurement::memory_bytes);
        is_slow(gpu.memory_bytes, most)) {
      blame(i, fmt::format("its memory is slow: {:.4g} GB/s, where another GPU of its model does "
                           "{:.4g}; see its clocks: nvidia-smi -q -i {} -d CLOCK, and end other "
                           "programs on it",
                           gpu.memory_bytes / k_gigabyte, most / k_gigabyte, gpu.name));
    }
  }

  double fastest(const LinkMeasurement& link) const {
    double most = 0;
    for (const LinkMeasurement& other : links_) {
      most = other.kind == link.kind ? std::max(most, other.bytes) : most;
    }
    return most;
  }

  void judge_links() {
    const auto is_bad = [&](const LinkMeasurement& link) {
      return is_slow(link.bytes, fastest(link));
    };
    std::vector<std::size_t> culprits;
    for (std::size_t i = 0; i < gpus_.size() && gpus_.size() >= k_least_gpus_for_links; ++i) {
      double own = 0;
      double best = 0;
      std::size_t count = 0;
      bool are_all_bad = true;
      for (const LinkMeasurement& link : links_) {
        if (link.from == i || link.to == i) {
          ++count;
          own = std::max(own, link.bytes);
          best = std::max(best, fastest(link));
          are_all_bad = are_all_bad && is_bad(link);
        }
      }
      if (count > 0 && are_all_bad) {
        culprits.push_back(i);
        blame(i, fmt::format("copies to and from it are slow: {:.4g} GB/s at most, where others do "
                             "{:.4g}; see the speed and width of its link: nvidia-smi -q -i {}, "
                             "and reseat it",
                             own / k_gigabyte, best / k_gigabyte, gpus_[i].name));
      }
    }
    const auto is_explained = [&](const LinkMeasurement& link) {
      return std::any_of(culprits.begin(), culprits.end(),
                         [&](std::size_t i) { return link.from == i || link.to == i; });
    };
    for (const LinkMeasurement& link : links_) {
      const std::string pair =
          fmt::format("GPU {} to GPU {}", gpus_[link.from].name, gpus_[link.to].name);
      if (!link.error.empty()) {
        judgement_.links.push_back(fmt::format("{}: the copy failed: {}", pair, link.error));
      } else if (!link.is_intact) {
        judgement_.links.push_back(fmt::format(
            "{}: a copy arrived with other bits; see dmesg, and reseat both GPUs", pair));
      } else if (is_bad(link) && !is_explained(link)) {
        judgement_.links.push_back(
            fmt::format("{}: copies are slow: {:.4g} GB/s, where others of this kind ({}) do "
                        "{:.4g}; nvidia-smi topo -m shows how they are connected",
                        pair, link.bytes / k_gigabyte, link.kind, fastest(link) / k_gigabyte));
      }
    }
  }

  static constexpr const char* k_replace =
      "do not train on it: hide it with CUDA_VISIBLE_DEVICES, and replace it";

  const std::vector<GpuMeasurement>& gpus_;
  const std::vector<LinkMeasurement>& links_;
  GpuJudgement judgement_;
};

} // namespace

std::vector<std::string> GpuJudgement::all() const {
  std::vector<std::string> found;
  std::copy_if(faults.begin(), faults.end(), std::back_inserter(found),
               [](const std::string& fault) { return !fault.empty(); });
  found.insert(found.end(), links.begin(), links.end());
  return found;
}

GpuJudgement judge(const std::vector<GpuMeasurement>& gpus,
                   const std::vector<LinkMeasurement>& links) {
  return Judge(gpus, links).run();
}

} // namespace trainer
