#include "submit/job_spec.h"

#include "submit/errors.h"
#include "submit/options/duration.h"

#include <doctest/doctest.h>

#include <set>

using namespace dtrain;

namespace {

template <typename Change>
std::string refused(Change change) {
  JobSpec job;
  job.name = "mnist";
  change(job);
  try {
    resolve(job);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}

} // namespace

TEST_CASE("a job without a name gets one that is short, a DNS label and its own") {
  std::set<std::string> names;
  for (int i = 0; i < 50; ++i) {
    names.insert(resolve({}).name);
  }
  CHECK(names.size() == 50);
  for (const std::string& name : names) {
    CHECK(name.starts_with("dtrain-"));
    CHECK(name.size() == 12);
  }
}

TEST_CASE("a resolved job resolves to itself, and what was left open is filled in") {
  JobSpec job;
  job.namespace_name = "";
  job = resolve(job);
  CHECK(job.namespace_name == "default");
  CHECK(resolve(job) == job);
}

TEST_CASE("a name that is no DNS label is refused with one that is") {
  CHECK(refused([](JobSpec& j) { j.name = "My_Job."; }) ==
        "--name=My_Job.: must be a DNS label, at most 63 of a-z, 0-9 and '-' with a letter or "
        "digit at both ends; try my-job");
  CHECK(refused([](JobSpec& j) { j.name = "--workers=3"; }).ends_with("try workers-3"));
  CHECK(refused([](JobSpec& j) { j.name = std::string(64, 'a'); }) != "accepted");
  CHECK(refused([](JobSpec& j) { j.name = "a\nb"; }).find("--name=a\\nb:") == 0);
  CHECK(refused([](JobSpec& j) { j.namespace_name = "../x"; }).find("--namespace=../x:") == 0);
  CHECK(refused([](JobSpec& j) { j.name = std::string(63, 'a'); }) == "accepted");
  CHECK(refused([](JobSpec& j) { j.name = "0-1"; }) == "accepted");
  CHECK(refused([](JobSpec& j) { j.priority = "high"; }) == "accepted");
  CHECK(refused([](JobSpec& j) { j.priority = "a..b"; }) != "accepted");
  CHECK(refused([](JobSpec& j) { j.priority = "a."; }) != "accepted");
}

TEST_CASE("numbers out of range are refused by flag and range") {
  CHECK(refused([](JobSpec& j) { j.workers = 0; }) == "--workers=0: must be between 1 and 4096");
  CHECK(refused([](JobSpec& j) { j.workers = 1'000'000'000; }) ==
        "--workers=1000000000: must be between 1 and 4096");
  CHECK(refused([](JobSpec& j) { j.gpus = -1; }) == "--gpus=-1: must be between 0 and 64");
  CHECK(refused([](JobSpec& j) { j.grace_period_ms = -1; }).find("between 0s and 1h") !=
        std::string::npos);
  CHECK(refused([](JobSpec& j) { j.require_gpus = true; }) ==
        "--require-gpus: add --gpus=N, the number of GPUs per worker");
  CHECK(refused([](JobSpec& j) { j.check_gpus = "measure"; }) ==
        "--check-gpus=measure: add --gpus=N, the number of GPUs per worker");
}

TEST_CASE("workers outside of what an elastic job allows are refused by the bound they miss") {
  const auto elastic = [](int workers, int least, int most) {
    return refused([&](JobSpec& j) {
      j.workers = workers;
      j.min_workers = least;
      j.max_workers = most;
    });
  };
  CHECK(elastic(3, 5, 0) == "--workers=3: must be at least --min-workers=5");
  CHECK(elastic(3, 1, 2) == "--workers=3: must be at most --max-workers=2");
  CHECK(elastic(3, 2, 4) == "accepted");
  CHECK(elastic(3, 3, 0) == "accepted");
}

TEST_CASE("words that no program can be given are refused") {
  CHECK(refused([](JobSpec& j) {
          j.command = {"a", std::string("b\0c", 3)};
        }) == "word 2 of the command: has a NUL byte, which an argument cannot hold: b\\x00c");
  CHECK(refused([](JobSpec& j) {
          j.command = {"a", std::string(200'000, 'x')};
        }) ==
        "word 2 of the command: is 200000 bytes long, and Linux allows 131071; put it into a file");
  CHECK(refused([](JobSpec& j) { j.command = {""}; }) ==
        "the command's first word, the program, is empty");
  CHECK(refused([](JobSpec& j) { j.command = {"a", "", "'\"\n$#{{\xff"}; }) == "accepted");
}

TEST_CASE("environment entries are KEY=VALUE, and the later of two stays") {
  CHECK(refused([](JobSpec& j) { j.env = {"FOO"}; }) ==
        "--env=FOO: must be KEY=VALUE; write FOO= for an empty value");
  CHECK(refused([](JobSpec& j) { j.env = {"1A=x"}; }) ==
        "--env=1A=x: bad variable name '1A': use letters, digits and '_', no digit first");
  CHECK(refused([](JobSpec& j) { j.env = {"=x"}; }) != "accepted");
  JobSpec job;
  job.env = {"A=1", "B=x=y", "A=2", "C="};
  CHECK(resolve(job).env == std::vector<std::string>{"A=2", "B=x=y", "C="});
}

TEST_CASE("durations are read in every unit and written in the longest that is exact") {
  using std::chrono::milliseconds;
  CHECK(parse_duration("10") == milliseconds(10'000));
  CHECK(parse_duration("1.5s") == milliseconds(1500));
  CHECK(parse_duration("500ms") == milliseconds(500));
  CHECK(parse_duration("2m") == milliseconds(120'000));
  CHECK(parse_duration("1h") == milliseconds(3'600'000));
  for (const char* bad : {"", "s", "-1s", "1x", "1 s", "inf", "nan", "1e9", "99999999d"}) {
    CHECK_FALSE(parse_duration(bad));
  }
  for (const int count : {0, 1, 1000, 1500, 60'000, 3'600'000}) {
    CHECK(parse_duration(format_duration(milliseconds(count))) == milliseconds(count));
  }
  CHECK(format_duration(milliseconds(90'000)) == "90s");
}

TEST_CASE("the bundled trainer runs where the command is empty or begins with a flag") {
  JobSpec job;
  CHECK(job.runs_bundled_trainer());
  job.command = {"--epochs=2"};
  CHECK(job.runs_bundled_trainer());
  job.command = {"true"};
  CHECK_FALSE(job.runs_bundled_trainer());
  CHECK(instance_name("worker", 3) == "worker-3");
}
