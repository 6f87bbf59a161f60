#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include <sys/mman.h>

#include "tests/unit/trainer/temp_folder.h"
#include "trainer/device/cpu/cpu_device.h"
#include "trainer/errors.h"
#include "trainer/optim/arena_file.h"

using namespace trainer;

namespace {

constexpr std::size_t k_floats = 20'000;

/// A part that shares its last page with one that is next but one, two that touch, and one in a
/// page of its own.
const std::vector<ArenaRange> k_parts = {{16, 1040}, {1056, 3008}, {3008, 7008}, {15'360, 15'376}};

void read_in(ArenaFile& file, std::span<float> arena, const ArenaRange& part) {
  file.wait(file.start_read(part.first, arena.subspan(part.first, part.size())));
}

/// Cuts the file that this process has in the folder short.
void cut_short(const std::string& folder) {
  for (const auto& fd : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error; // Of the iterator's own, which ends.
    if (std::filesystem::read_symlink(fd, error).string().starts_with(folder)) {
      std::filesystem::resize_file(fd, 0);
    }
  }
}

} // namespace

TEST_CASE("parts of an arena in a file are zero at first, read in place, and stay") {
  const TempFolder folder;
  CpuDevice device;
  const Buffer memory = device.allocate_paged(k_floats);
  const std::span<float> arena = memory.span();
  std::fill(arena.begin(), arena.end(), -1.0F);
  ArenaFile file(arena, k_parts, folder.path(), "the parameters");
  for (const ArenaRange& part : k_parts) {
    std::vector<float> values(part.size());
    read_in(file, arena, part);
    CHECK(std::ranges::equal(arena.subspan(part.first, part.size()), values));
    std::fill(values.begin(), values.end(), static_cast<float>(part.first));
    file.write(part.first, values); // As a checkpoint is loaded.
  }
  for (int step = 1; step <= 3; ++step) {
    for (const ArenaRange& part : k_parts) {
      const std::span<float> here = arena.subspan(part.first, part.size());
      read_in(file, arena, part);
      std::vector<float> values(part.size());
      file.read(part.first, values);
      CHECK(std::ranges::equal(values, here));
      for (float& value : values) {
        value += 1;
      }
      file.write(part.first, values);
      CHECK(here.front() == static_cast<float>(part.first) + static_cast<float>(step));
      CHECK(here.back() == here.front());
    }
    device.discard(arena);
  }
  CHECK(arena[12'000] == 0); // No part's: only it has been freed.
  CHECK(std::filesystem::is_empty(folder.path()));
}

TEST_CASE("a file of an arena that cannot be read any more is an error that names its folder") {
  const TempFolder folder;
  const Buffer memory = Buffer::paged(k_floats, DType::f32);
#ifdef MADV_POPULATE_READ
  if (madvise(memory.memory(), 1, MADV_POPULATE_READ) != 0) {
    return; // An earlier kernel.
  }
#else
  return;
#endif
  ArenaFile file(memory.span(), k_parts, folder.path(), "the parameters");
  cut_short(folder.path());
  CHECK(message_of<Error>([&] { read_in(file, memory.span(), k_parts[1]); }) ==
        folder.path() + ": cannot read the parameters: Input/output error");
}
