#include "backends/support/code/code_archive.h"

#include "submit/errors.h"
#include "tests/unit/backends/temporary_folder.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <random>
#include <set>

using namespace dtrain;

namespace {

constexpr std::int64_t k_room = 100'000'000;

std::string noise(std::size_t size, unsigned seed) {
  std::mt19937 generator(seed);
  std::string bytes(size, '\0');
  for (char& byte : bytes) {
    byte = static_cast<char>(generator());
  }
  return bytes;
}

std::set<std::string> digests(const CodeArchive& archive) {
  std::set<std::string> all;
  for (const CodePart& part : archive.parts) {
    all.insert(part.digest);
  }
  return all;
}

} // namespace

TEST_CASE("the parts of a packed folder, one after the other, unpack to what the folder holds") {
  const test::TemporaryFolder folder;
  const std::string code = folder / "code";
  std::filesystem::create_directories(code + "/deep/er");
  folder.write("code/deep/-odd \\n name", "odd");
  folder.write("code/run.sh", "#!/bin/sh\n");
  std::filesystem::permissions(code + "/run.sh", std::filesystem::perms::owner_all);
  std::filesystem::create_symlink("deep/nowhere", code + "/link");
  folder.write("code/weights", noise(3'000'000, 1));
  folder.write("code/zeros", std::string(3'000'000, '\0'));
  folder.write("code/.dtrainignore", "left-out\n");
  folder.write("code/left-out", "x");
  std::int64_t told = 0;
  const CodeArchive archive =
      pack_folder(code, k_room, [&](const CopyProgress& now) { told = now.bytes; });
  CHECK(archive.files == 4);
  CHECK(told > 0);
  CHECK(told <= archive.bytes);
  std::string stream;
  for (const CodePart& part : archive.parts) {
    CHECK(part.gzip.size() <= k_most_part_bytes);
    stream += part.gzip;
  }
  CHECK(static_cast<std::int64_t>(stream.size()) == archive.packed_bytes);
  folder.write("stream", stream);
  std::filesystem::create_directory(folder / "out");
  const std::string unpack = "tar -xzf " + (folder / "stream") + " -C " + (folder / "out");
  REQUIRE(std::system(unpack.c_str()) == 0);
  std::filesystem::remove(code + "/left-out");
  std::filesystem::remove(code + "/.dtrainignore");
  const std::string compare = "diff -r --no-dereference " + code + " " + (folder / "out") +
                              " && test -x " + (folder / "out/run.sh");
  CHECK(std::system(compare.c_str()) == 0);
}

TEST_CASE("a change of a file changes the parts around it, and packing is the same each time") {
  const test::TemporaryFolder folder;
  std::filesystem::create_directory(folder / "code");
  for (unsigned i = 0; i < 40; ++i) {
    folder.write("code/" + std::to_string(10 + i), noise(300'000, i));
  }
  const std::set<std::string> before = digests(pack_folder(folder / "code", k_room, {}));
  CHECK(digests(pack_folder(folder / "code", k_room, {})) == before);
  folder.write("code/30", "now a short one");
  const CodeArchive after = pack_folder(folder / "code", k_room, {});
  std::size_t fresh = 0;
  for (const std::string& digest : digests(after)) {
    fresh += before.contains(digest) ? 0 : 1;
  }
  CHECK(before.size() > 12);
  CHECK(fresh >= 1);
  CHECK(fresh <= 4);
}

TEST_CASE("a folder that is too much when packed is refused") {
  const test::TemporaryFolder folder;
  std::filesystem::create_directory(folder / "code");
  folder.write("code/x", noise(4'000'000, 1));
  CHECK_THROWS_WITH_AS(pack_folder(folder / "code", 2'000'000, {}),
                       doctest::Contains("4.0 MB in 1 file exceed 2.0 MB when packed"), UsageError);
}
