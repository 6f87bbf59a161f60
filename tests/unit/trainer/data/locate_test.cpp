#include "trainer/data/locate.h"

#include <doctest/doctest.h>

#include "tests/unit/trainer/temp_folder.h"
#include "trainer/errors.h"

using namespace trainer;

namespace {

// SHA-256 of "hello\n".
constexpr const char* k_hello = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03";

struct Site {
  TempFolder folder;
  std::vector<KnownDataset> known = {
      {"toy", "file:///nonexistent", "dataset-toy", {{"a.gz", k_hello}}}};
  DataPlaces places{folder / "packages", folder / "cache", "file://" + (folder / "site"), false};

  void publish(const std::string& content) const {
    std::filesystem::create_directories(folder / "site/toy");
    std::ofstream(folder / "site/toy/a.gz") << content;
  }
};

} // namespace

TEST_CASE("a data set by name is downloaded once and then found in the cache") {
  const Site site;
  site.publish("hello\n");
  const std::string folder = locate_dataset("toy", site.places, site.known);
  CHECK(folder == site.folder / "cache/toy");
  CHECK(read_file(folder + "/a.gz") == "hello\n");
  std::filesystem::remove_all(site.folder / "site");
  CHECK(locate_dataset("toy", site.places, site.known) == folder);
}

TEST_CASE("a download with the wrong checksum leaves no file and says how to get the data") {
  const Site site;
  site.publish("hellO\n");
  const std::string message =
      message_of<Error>([&] { locate_dataset("toy", site.places, site.known); });
  CHECK(contains(message, "SHA-256"));
  CHECK(contains(message, "install Debian's package dataset-toy"));
  for (const auto& entry : std::filesystem::directory_iterator(site.folder / "cache/toy")) {
    CHECK(entry.path().filename() == ".lock");
  }
}

TEST_CASE("without a home there is no folder that others share to download to") {
  Site site;
  site.publish("hello\n");
  site.places.cache.clear();
  CHECK(contains(message_of<Error>([&] { locate_dataset("toy", site.places, site.known); }),
                 "neither HOME nor XDG_CACHE_HOME"));
}

TEST_CASE("the package's folder comes before the cache and the network") {
  const Site site;
  std::filesystem::create_directories(site.folder / "packages/toy");
  std::ofstream(site.folder / "packages/toy/a.gz") << "x";
  CHECK(locate_dataset("toy", site.places, site.known) == site.folder / "packages/toy");
}

TEST_CASE("a folder that is neither a name nor there is a usage error") {
  const Site site;
  CHECK(contains(
      message_of<UsageError>([&] { locate_dataset("/no/such\nfolder", site.places, site.known); }),
      "--data=/no/such\\nfolder: no such folder"));
}
