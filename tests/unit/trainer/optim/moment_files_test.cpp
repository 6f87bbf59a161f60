#include <doctest/doctest.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <vector>

#include <sys/resource.h>

#include "trainer/device/cpu/cpu_device.h"
#include "trainer/errors.h"
#include "trainer/optim/moment_files.h"

using namespace trainer;

namespace {

constexpr std::size_t k_piece = MomentFiles::k_piece;

std::string folder() { return std::filesystem::temp_directory_path(); }

/// Adds 1 to all values of the first moment and 2 to those of the second, piece by piece.
void add(MomentFiles& files, std::size_t count) {
  for (std::size_t at = 0; at < count; at += k_piece) {
    const auto [m, v] = files.use(at);
    for (std::size_t i = 0; i < std::min(k_piece, count - at); ++i) {
      m[i] += 1;
      v[i] += 2;
    }
  }
}

bool all_are(std::span<const float> values, float value) {
  return std::all_of(values.begin(), values.end(), [&](float one) { return one == value; });
}

} // namespace

TEST_CASE("moments in files are what updates made them, however many pieces they have") {
  CpuDevice device(best_kernels());
  for (const std::size_t count :
       {std::size_t{1000}, k_piece, 2 * k_piece + 16, 5 * k_piece, 7 * k_piece + 48}) {
    CAPTURE(count);
    MomentFiles files(device, 2, count, folder());
    for (int pass = 0; pass < 3; ++pass) {
      add(files, count);
    }
    files.flush();
    CHECK(all_are(files.mapped(0), 3));
    CHECK(all_are(files.mapped(1), 6));
    std::fill(files.mapped(0).begin(), files.mapped(0).end(), 10.0F); // As a checkpoint is loaded.
    files.forget();
    add(files, count);
    files.flush();
    CHECK(all_are(files.mapped(0), 11));
    CHECK(all_are(files.mapped(1), 8));
  }
}

TEST_CASE("moments in files may be used in any order, and from within a piece") {
  CpuDevice device(best_kernels());
  const std::size_t count = 9 * k_piece;
  MomentFiles files(device, 1, count, folder());
  for (const std::size_t piece : {8, 0, 4, 3, 8, 4, 7, 0}) {
    for (const std::size_t offset : {std::size_t{0}, k_piece / 2}) {
      files.use(piece * k_piece + offset)[0][0] += 1;
    }
  }
  files.flush();
  std::vector<float> found;
  for (std::size_t piece = 0; piece < 9; ++piece) {
    const float first = files.mapped(0)[piece * k_piece];
    CHECK(files.mapped(0)[piece * k_piece + k_piece / 2] == first);
    found.push_back(first);
  }
  CHECK(found == std::vector<float>{2, 0, 0, 1, 2, 0, 0, 1, 2});
}

TEST_CASE("a folder that cannot have the moments, and one that fails later, are named") {
  CpuDevice device(best_kernels());
  CHECK_THROWS_WITH_AS(MomentFiles(device, 2, 1000, "/nowhere"),
                       doctest::Contains("/nowhere: no file of 0.0 MB"), UsageError);
  MomentFiles files(device, 2, 1000, folder());
  files.use(0)[0][0] = 1;
  rlimit old{};
  getrlimit(RLIMIT_FSIZE, &old);
  auto* const before = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit none{0, old.rlim_max};
  setrlimit(RLIMIT_FSIZE, &none);
  std::string what;
  try {
    files.flush();
  } catch (const Error& e) {
    what = e.what();
  }
  setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, before);
  CHECK(what == folder() + ": cannot write the optimizer's states: File too large");
}
