#include <doctest/doctest.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include <sys/resource.h>

#include "trainer/device/cpu/cpu_device.h"
#include "trainer/errors.h"
#include "trainer/optim/state_files.h"

using namespace trainer;

namespace {

constexpr std::size_t k_piece = StateFiles::k_piece;

std::string folder() { return std::filesystem::temp_directory_path(); }

std::vector<StateFiles::RowOptions> rows(std::size_t count) {
  return {count, {folder(), "the optimizer's states"}};
}

/// Adds 1 to all values of the first row, 2 to those of the second, …, piece by piece.
void add(StateFiles& files, CpuDevice& device, std::size_t rows, std::size_t count) {
  for (std::size_t at = 0; at < count; at = files.end_of_piece(at)) {
    const auto values = files.use(at, device.stream());
    for (std::size_t row = 0; row < rows; ++row) {
      for (std::size_t i = 0; i < files.end_of_piece(at) - at; ++i) {
        values[row][i] += static_cast<float>(row + 1);
      }
    }
  }
}

std::vector<float> read(StateFiles& files, std::size_t row, std::size_t count) {
  std::vector<float> values(count);
  files.row(row).read(0, values);
  return values;
}

bool all_are(const std::vector<float>& values, float value) {
  return std::all_of(values.begin(), values.end(), [&](float one) { return one == value; });
}

} // namespace

TEST_CASE("states in files are what updates made them, however they are cut") {
  CpuDevice device(best_kernels());
  const std::vector<Pieces> cuts = {
      Pieces::of(1000),        Pieces::of(k_piece),          Pieces::of(2 * k_piece + 16),
      Pieces::of(5 * k_piece), Pieces::of(7 * k_piece + 48), {{0, 48, 64, 5000, 5016}}};
  for (const Pieces& pieces : cuts) {
    const std::size_t count = pieces.bounds.back();
    CAPTURE(count);
    StateFiles files(device, pieces, rows(3));
    for (int pass = 0; pass < 3; ++pass) {
      add(files, device, 3, count);
    }
    files.flush();
    CHECK(all_are(read(files, 0, count), 3));
    CHECK(all_are(read(files, 1, count), 6));
    CHECK(all_are(read(files, 2, count), 9));
    files.row(0).write(0, std::vector<float>(count, 10)); // As a checkpoint is loaded.
    add(files, device, 3, count);
    files.flush();
    CHECK(all_are(read(files, 0, count), 11));
    CHECK(all_are(read(files, 1, count), 8));
  }
}

TEST_CASE("pieces of states may be used in any order, and from within a piece") {
  CpuDevice device(best_kernels());
  const std::size_t count = 9 * k_piece;
  StateFiles files(device, Pieces::of(count), rows(1));
  for (const std::size_t piece : {8, 0, 4, 3, 8, 4, 7, 0}) {
    for (const std::size_t offset : {std::size_t{0}, k_piece / 2}) {
      files.use(piece * k_piece + offset, device.stream())[0][0] += 1;
    }
  }
  files.flush();
  const std::vector<float> values = read(files, 0, count);
  std::vector<float> found;
  for (std::size_t piece = 0; piece < 9; ++piece) {
    CHECK(values[piece * k_piece + k_piece / 2] == values[piece * k_piece]);
    found.push_back(values[piece * k_piece]);
  }
  CHECK(found == std::vector<float>{2, 0, 0, 1, 2, 0, 0, 1, 2});
}

TEST_CASE("what is read beside updates is what they were before, and all of them") {
  CpuDevice device(best_kernels());
  const std::size_t count = 5 * k_piece + 16;
  StateFiles files(device, Pieces::of(count), rows(1));
  std::vector<float> found(count);
  for (int pass = 1; pass <= 3; ++pass) {
    add(files, device, 1, count); // The last piece is still in use.
    const ValueFile::Ticket first = files.row(0).start_read(0, std::span(found).first(100));
    const ValueFile::Ticket rest = files.row(0).start_read(100, std::span(found).subspan(100));
    files.row(0).wait(rest);
    files.row(0).wait(first);
    CHECK(all_are(found, static_cast<float>(pass)));
  }
}

TEST_CASE("a folder that cannot have the states, and one that fails later, are named") {
  CpuDevice device(best_kernels());
  CHECK_THROWS_WITH_AS(StateFiles(device, Pieces::of(1000), {{"/nowhere", "the parameters"}}),
                       doctest::Contains("/nowhere: no file there for the parameters"), UsageError);
  StateFiles files(device, Pieces::of(1000), rows(2));
  files.use(0, device.stream())[0][0] = 1;
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
