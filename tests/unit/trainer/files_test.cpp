#include "trainer/files.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <unistd.h>

#include "tests/unit/trainer/temp_folder.h"
#include "trainer/errors.h"

using namespace trainer;

TEST_CASE("a file is written whole or not at all, and through nobody's link") {
  const TempFolder folder;
  const std::string target = folder.write("target", "before");
  const std::string victim = folder.write("victim", "somebody's");
  const std::string planted = fmt::format("{}.tmp.{}", target, getpid());
  std::filesystem::create_symlink(victim, planted);
  const std::string text = "after";
  { AtomicFile(target).write(std::as_bytes(std::span(text))); }
  CHECK(read_file(target) == "before");
  CHECK(!std::filesystem::is_symlink(planted));

  std::filesystem::remove(target);
  std::filesystem::create_symlink(victim, target);
  std::filesystem::create_symlink(victim, planted);
  AtomicFile file(target);
  file.write(std::as_bytes(std::span(text)));
  file.commit();
  CHECK(read_file(target) == "after");
  CHECK(!std::filesystem::is_symlink(target)); // It was replaced, not followed.
  CHECK(read_file(victim) == "somebody's");
}
