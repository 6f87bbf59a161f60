#include "cli/job_path.h"

#include "submit/errors.h"

#include <doctest/doctest.h>

#include <string>

using namespace dtrain;

namespace {

/// "job|instance|path"
std::string read(const std::string& text) {
  const auto found = read_job_path(text);
  return found.job + "|" + found.instance + "|" + found.path;
}

} // namespace

TEST_CASE("a path of a job's names the job, perhaps an instance, and the rest as it is") {
  CHECK(read("mnist:ckpt") == "mnist||ckpt");
  CHECK(read("mnist:") == "mnist||");
  CHECK(read("mnist:/a:b/c d") == "mnist||/a:b/c d");
  CHECK(read("mnist/worker-1:ckpt") == "mnist|worker-1|ckpt");
  CHECK(read("job/mnist:ckpt") == "mnist||ckpt");
  CHECK(read("mpijob/mnist/launcher-0:ckpt") == "mnist|launcher-0|ckpt");
  CHECK(read("sweep/7/worker-0:ckpt") == "sweep|7/worker-0|ckpt"); // Of an array.
}

TEST_CASE("what is no path of a job's is refused with what is one") {
  for (const auto* text :
       {"mnist", "", ":ckpt", "./a:b", "/a:b", "job/:ckpt", "mnist/:ckpt", "A:b"}) {
    CAPTURE(text);
    CHECK_THROWS_AS(read_job_path(text), UsageError);
  }
}

TEST_CASE("a copy has the name of what is copied, or the job's") {
  const auto name = [](const char* path) { return JobPath{"mnist", "", path}.name(); };
  CHECK(name("ckpt/step-7") == "step-7");
  CHECK(name("/data/out/") == "out");
  CHECK(name("a/..") == "mnist");
  for (const auto* path : {"", ".", "/", "..", "./"}) {
    CAPTURE(path);
    CHECK(name(path) == "mnist");
  }
}
