#include "trainer/collectives/nccl/choice.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include <fmt/format.h>

#include "trainer/collectives/agreement.h"
#include "trainer/collectives/records.h"

namespace trainer {
namespace {

constexpr int k_shares_gpus = 23003; ///< The first NCCL that allows two ranks on one GPU.

/// What a worker tells the others.
struct Offer {
  std::int32_t gpus = 0;
  std::int32_t nccl = 0; ///< Its version; 0: it has none.
  CudaDevice::Uuid first{};
};

bool may_share_gpus(int version) {
  const char* enabled = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE");
  return version >= k_shares_gpus && enabled != nullptr && std::strcmp(enabled, "1") == 0;
}

std::string version_text(int version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

/// Empty: nothing speaks against it. `missing`: why this worker has none.
std::string why_not(const std::vector<Offer>& offers, const std::string& missing,
                    const Communicator& between) {
  const auto with =
      std::count_if(offers.begin(), offers.end(), [](const Offer& one) { return one.gpus > 0; });
  if (with < std::ssize(offers)) {
    return with == 0 ? std::string("no rank computes on a GPU")
                     : fmt::format("{} of {} workers compute on a GPU", with, offers.size());
  }
  for (std::size_t i = 0; i < offers.size(); ++i) {
    const std::string name = between.name(static_cast<int>(i));
    if (offers[i].nccl == 0) {
      return fmt::format("{} has none{}", name,
                         static_cast<int>(i) == between.rank() ? " (" + missing + ")" : "");
    }
    if (offers[i].nccl < k_least_nccl_version) {
      return fmt::format("{} has NCCL {}, and {} or later is needed", name,
                         version_text(offers[i].nccl), version_text(k_least_nccl_version));
    }
    if (offers[i].nccl != offers.front().nccl) {
      return fmt::format("{} has NCCL {}, {} has {}", between.name(0),
                         version_text(offers.front().nccl), name, version_text(offers[i].nccl));
    }
    const auto same = std::find_if(offers.begin(), offers.begin() + static_cast<std::ptrdiff_t>(i),
                                   [&](const Offer& one) { return one.first == offers[i].first; });
    if (same != offers.begin() + static_cast<std::ptrdiff_t>(i) &&
        !may_share_gpus(offers[i].nccl)) {
      return fmt::format("{} and {} are on one GPU; give each its own by CUDA_VISIBLE_DEVICES",
                         between.name(static_cast<int>(same - offers.begin())), name);
    }
  }
  return "";
}

} // namespace

NcclChoice choose_nccl(Communicator& between, const std::vector<CudaDevice*>& gpus,
                       const std::string& asked) {
  Offer mine{static_cast<std::int32_t>(gpus.size()), 0, {}};
  const DtrainNccl* nccl = nullptr;
  std::string missing;
  if (!gpus.empty()) {
    const CudaDevice& first = *gpus.front();
    mine.first = first.uuid();
    nccl = first.nccl(missing);
    mine.nccl = nccl == nullptr ? 0 : nccl->version;
  }
  const std::string why = why_not(all_gather(between, mine, "GPUs"), missing, between);
  if (why.empty()) {
    return {nccl, ""};
  }
  if (!asked.empty()) {
    throw_on_all_ranks(between, fmt::format("{}: {}; or use auto", asked, why));
  }
  return {nullptr, "; not NCCL: " + why};
}

} // namespace trainer
