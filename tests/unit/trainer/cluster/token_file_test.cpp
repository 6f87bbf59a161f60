#include <doctest/doctest.h>

#include <sys/stat.h>

#include "tests/unit/trainer/temp_folder.h"
#include "trainer/cluster/cluster.h"
#include "trainer/errors.h"

namespace trainer {
namespace {

TEST_CASE("a token is the first line of a file that is the user's alone") {
  const TempFolder folder;
  const std::string path = folder.write("token", "0123456789abcdef\nnot this\n");
  chmod(path.c_str(), S_IRUSR | S_IWUSR);
  CHECK(read_token_file(path) == "0123456789abcdef");
  for (const mode_t others : {S_IRGRP, S_IWGRP, S_IROTH, S_IWOTH}) {
    chmod(path.c_str(), S_IRUSR | S_IWUSR | others);
    CHECK_THROWS_WITH_AS(
        read_token_file(path),
        ("--token-file=" + path + ": other users can read it; run chmod 600 on it").c_str(),
        UsageError);
  }
}

TEST_CASE("a token file that is not there or keeps nobody out is refused") {
  const TempFolder folder;
  CHECK_THROWS_AS(read_token_file(folder / "none"), UsageError);
  const std::string path = folder.write("token", "0123456789abcde\n");
  chmod(path.c_str(), S_IRUSR);
  CHECK_THROWS_AS(read_token_file(path), UsageError);
}

} // namespace
} // namespace trainer
