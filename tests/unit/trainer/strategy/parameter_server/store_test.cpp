#include "trainer/strategy/parameter_server/store.h"

#include <filesystem>
#include <fstream>

#include <doctest/doctest.h>
#include <unistd.h>

#include "tests/unit/trainer/device/test_device.h"
#include "trainer/errors.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;

struct Folder {
  Folder() : path(fs::temp_directory_path() / ("dtrain-store-" + std::to_string(getpid()))) {
    fs::create_directories(path);
  }
  ~Folder() { fs::remove_all(path); }
  fs::path path;
};

const std::vector<ArenaRange> k_ranges = {{16, 1000}, {1008, 1624}};

ShardStore make_store() {
  ShardStore store(k_ranges, {.peak = 0.01}, test_device());
  for (std::size_t i = 0; i < store.parameters().size(); ++i) {
    store.parameters()[i] = 0.001F * static_cast<float>(i);
  }
  return store;
}

std::vector<float> values_of(const ShardStore& store) {
  return {store.parameters().begin(), store.parameters().end()};
}

std::vector<float> gradient(float scale) {
  std::vector<float> values(1600);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = scale * static_cast<float>(i % 7);
  }
  return values;
}

Contribution of(const std::vector<float>& values, double weight = 1) {
  return {{values.data(), values.data() + k_ranges[0].size()}, weight};
}

TEST_CASE("an update is Adam's of the mean of clipped gradients, weighted by samples") {
  ShardStore store = make_store();
  const auto a = gradient(1.0F);
  const auto b = gradient(-0.5F);
  std::vector<Contribution> both = {of(a, 3), of(b)};
  both[0].factor = 0.5; // As its worker clips it.
  store.apply(both);

  Buffer parameters(1600);
  Buffer mean(1600);
  for (std::size_t i = 0; i < 1600; ++i) {
    parameters.data()[i] = 0.001F * static_cast<float>(i);
    mean.data()[i] = 0.375F * a[i] + 0.25F * b[i];
  }
  Optimizer adam({.learning_rate = 0.01}, parameters.span(), mean.span(), test_device());
  adam.begin_step();
  adam.update(0, 1600);
  for (std::size_t i = 0; i < 1600; ++i) {
    CHECK(store.parameters()[i] == doctest::Approx(parameters.data()[i]).epsilon(1e-6));
  }
  CHECK(store.version() == 1);
}

TEST_CASE("a snapshot continues to the same bits") {
  const Folder folder;
  const auto one = gradient(1.0F);
  const auto two = gradient(0.3F);
  const Contribution first = of(one);
  const Contribution second = of(two);
  ShardStore whole = make_store();
  whole.apply({&first, 1});
  whole.save(folder.path, "job", 2);
  whole.apply({&second, 1});

  ShardStore resumed(k_ranges, {.peak = 0.01}, test_device());
  resumed.load(folder.path, "job", 1);
  CHECK(resumed.version() == 1);
  resumed.apply({&second, 1});
  CHECK(values_of(resumed) == values_of(whole));
}

TEST_CASE("a damaged snapshot is passed over for an older whole one") {
  const Folder folder;
  const auto one = gradient(1.0F);
  const Contribution push = of(one);
  ShardStore store = make_store();
  for (int i = 0; i < 3; ++i) {
    store.apply({&push, 1});
    store.save(folder.path, "job", 2);
  }
  CHECK_FALSE(fs::exists(folder.path / "step-000000001.safetensors"));
  const fs::path newest = folder.path / "step-000000003.safetensors";
  SUBCASE("cut short") { fs::resize_file(newest, fs::file_size(newest) - 1); }
  SUBCASE("a byte changed") {
    std::fstream file(newest, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-100, std::ios::end);
    file.put('x');
  }
  SUBCASE("a bit of the header changed") {
    std::fstream file(newest, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(40);
    const int byte = file.get();
    file.seekp(40);
    file.put(static_cast<char>(byte ^ 1));
  }
  SUBCASE("not finished") { fs::remove(folder.path / "step-000000003.json"); }
  SUBCASE("empty") { fs::resize_file(newest, 0); }
  SUBCASE("not a snapshot") { std::ofstream(newest) << "something else entirely, and longer"; }
  CHECK(ShardStore::snapshots(folder.path) == std::vector<std::int64_t>{2});
  ShardStore resumed(k_ranges, {.peak = 0.01}, test_device());
  resumed.load(folder.path, "job", 2);
  CHECK(resumed.version() == 2);
  CHECK_FALSE(fs::exists(newest)); // Its step is to be done again.
}

TEST_CASE("a snapshot of another job is refused, not overwritten by chance") {
  const Folder folder;
  make_store().save(folder.path, "job", 2);
  ShardStore other(k_ranges, {.peak = 0.01}, test_device());
  CHECK_THROWS_AS(other.load(folder.path, "another job", 0), DataError);
  CHECK_THROWS_AS(other.load(folder.path / "none", "job", 0), DataError);
  CHECK(ShardStore::snapshots(folder.path / "none").empty());
}

} // namespace
} // namespace trainer
