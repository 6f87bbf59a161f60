#include "backends/supervised/gang/devices.h"

#include <doctest/doctest.h>

namespace dtrain {
namespace {

using Names = std::vector<std::string>;

TEST_CASE("CUDA_VISIBLE_DEVICES is read as CUDA reads it") {
  CHECK(visible_gpus("").empty());
  CHECK(visible_gpus("0,2") == Names{"0", "2"});
  CHECK(visible_gpus("3, 1") == Names{"3", "1"});
  CHECK(visible_gpus("GPU-8932f937,MIG-x") == Names{"GPU-8932f937", "MIG-x"});
  CHECK(visible_gpus("0,-1,2") == Names{"0"});
  CHECK(visible_gpus("NoDevFiles").empty());
  CHECK(visible_gpus("1,1") == Names{"1"});
}

TEST_CASE("a rank has the devices of its plan, or none, or whatever its node shows it") {
  GangRank rank;
  CHECK(!own_gpus(rank));
  rank.devices = "";
  CHECK(own_gpus(rank) == Names{});
  rank.devices = "GPU-a,MIG-b";
  CHECK(own_gpus(rank) == Names{"GPU-a", "MIG-b"});
}

TEST_CASE("each rank gets devices that no other has, or none gets any") {
  const Names devices{"4", "5", "GPU-a", "7", "8"};
  CHECK(assign_gpus(devices, {2, 2}) == Names{"4,5", "GPU-a,7"});
  CHECK(assign_gpus(devices, {1, 1, 1, 1, 1}) == Names{"4", "5", "GPU-a", "7", "8"});
  CHECK(assign_gpus(devices, {1, 0, 2}) == Names{"4", "", "5,GPU-a"});
  CHECK(!assign_gpus(devices, {2, 2, 2}));
  CHECK(!assign_gpus(devices, {2'000'000'000, 2'000'000'000}));
}

} // namespace
} // namespace dtrain
