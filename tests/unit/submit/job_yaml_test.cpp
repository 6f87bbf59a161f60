#include "submit/errors.h"
#include "submit/fields/job_fields.h"
#include "submit/job_spec.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

using namespace dtrain;

namespace {

std::string refused(const std::string& text) {
  try {
    read_job_yaml(text, "job.yaml");
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}

} // namespace

TEST_CASE("a job file sets the fields that it names and leaves the rest") {
  const JobSpec job = read_job_yaml(R"(# a job
name: mnist
workers: 3
gpus: 1
requireGpus: true
gracePeriod: 2.5s
command: [python, train.py, --lr, 1e-3, "quoted: #x", 010]
env:
  A: 1
  B: "x y"
workingDir: /data
)",
                                    "job.yaml");
  CHECK(job.name == "mnist");
  CHECK(job.workers == 3);
  CHECK(job.gpus == 1);
  CHECK(job.require_gpus);
  CHECK(job.grace_period_ms == 2500);
  CHECK(job.command ==
        std::vector<std::string>{"python", "train.py", "--lr", "1e-3", "quoted: #x", "010"});
  CHECK(job.env == std::vector<std::string>{"A=1", "B=x y"});
  CHECK(job.working_dir == "/data");
  CHECK(job.namespace_name == "default");
  JobSpec base;
  base.namespace_name = "team";
  base.workers = 9;
  CHECK(read_job_yaml("workers: 2", "f", base).namespace_name == "team");
  CHECK(read_job_yaml("workers: 2", "f", base).workers == 2);
  CHECK(read_job_yaml(R"({"workers": 4, "env": ["A=b"]})", "f").env[0] == "A=b");
}

TEST_CASE("arguments arrive byte for byte through a written and read job file") {
  JobSpec job;
  job.name = "mnist";
  job.workers = 7;
  job.require_gpus = true;
  job.grace_period_ms = 1500;
  job.command = {"sh",
                 "-c",
                 "",
                 " ",
                 "a'; echo foo",
                 "a\"=0\"",
                 "two\nlines\n",
                 "$HOME `id`",
                 "# no comment",
                 "key: value",
                 "{{x}} {{{y}}}",
                 "\xff\xfe\x80",
                 "caf\xc3\xa9",
                 "true",
                 "~",
                 "null",
                 "1e-3",
                 "-",
                 "---",
                 "...",
                 "\t",
                 "\r",
                 "\\",
                 "yes",
                 "=",
                 "&a"};
  job.env = {"A=\xff\n", "B='\"", "C="};
  job.working_dir = "/tmp/with: colon #";
  CHECK(read_job_yaml(write_job_yaml(job), "job.yaml") == job);
  CHECK(read_job_yaml(write_job_yaml({}), "job.yaml") == JobSpec{});
}

TEST_CASE("a written job file reads well") {
  JobSpec job;
  job.name = "mnist";
  job.backend = "an-engine";
  job.workers = 3;
  job.command = {"python", "train.py", "--epochs=2"};
  CHECK(write_job_yaml(job) == R"(name: mnist
workers: 3
gpus: 0
requireGpus: false
maxRestarts: 0
gracePeriod: 1s
namespace: default
backend: an-engine
command:
  - python
  - train.py
  - "--epochs=2"
)");
}

TEST_CASE("an unknown key is refused with its place and the spelling it is near to") {
  CHECK(refused("name: a\nwokers: 3\n") ==
        "job.yaml:2:1: unknown key 'wokers': did you mean workers?");
  CHECK(refused("max-restarts: 3\n") ==
        "job.yaml:1:1: unknown key 'max-restarts': did you mean maxRestarts?");
  CHECK(refused("frobnicate: 3\n") ==
        "job.yaml:1:1: unknown key 'frobnicate': see dtrain-submit(1) for the keys");
}

TEST_CASE("a job file of 0.1 is read, with what no longer has an effect") {
  CHECK(read_job_yaml("name: a\nstartingTimeout: 10m\n", "job.yaml") ==
        read_job_yaml("name: a\n", "job.yaml"));
}

TEST_CASE("a key given twice is refused") {
  CHECK(refused("workers: 2\nname: a\nworkers: 3\n") == "job.yaml:3:1: 'workers' is given twice");
  CHECK(refused("env: {A: 1, A: 2}\n") == "job.yaml:1:13: env: 'A' is given twice");
}

TEST_CASE("a value of the wrong type is refused with its place") {
  CHECK(refused("workers: three\n") == "job.yaml:1:10: workers must be a whole number");
  CHECK(refused("workers: \"3\"\n") == "job.yaml:1:10: workers must be a whole number");
  CHECK(refused("workers: 0\n") == "job.yaml:1:10: workers must be between 1 and 4096, not 0");
  CHECK(refused("workers: 99999999999999\n") ==
        "job.yaml:1:10: workers must be between 1 and 4096, not 99999999999999");
  CHECK(refused("requireGpus: yes\n") == "job.yaml:1:14: requireGpus must be true or false");
  CHECK(refused("gracePeriod: soon\n") ==
        "job.yaml:1:14: gracePeriod must be a duration such as 10s, between 0s and 1h");
  CHECK(refused("name: [a]\n") == "job.yaml:1:7: name must be text, not a list");
  CHECK(refused("command: python train.py\n") ==
        "job.yaml:1:10: command must be a list with one word per item: [python, train.py]");
  CHECK(refused("command:\n  - a\n  - {b: c}\n") ==
        "job.yaml:3:5: item 2 of command must be text, not a map");
  CHECK(refused("command: [ls, ~]\n") ==
        "job.yaml:1:15: item 2 of command has no value; write '' for empty text");
  CHECK(refused("- a\n") == "job.yaml:1:1: a job is a map of keys and values, as in 'workers: 3'");
  for (const char* text : {"@@", "/wLL\xD4\xBELLL==", "a", "aa=a"}) {
    CHECK(refused(fmt::format("command: [!!binary \"{}\"]\n", text)) ==
          "job.yaml:1:11: item 1 of command is tagged !!binary but is not base64");
  }
}

TEST_CASE("text that is not YAML is refused with line and column") {
  CHECK(refused("name: a\nworkers: [1, 2\n").starts_with("job.yaml:"));
  CHECK(refused("name: \"a\n").starts_with("job.yaml:"));
  CHECK(refused("a: b: c\n").starts_with("job.yaml:1:"));
  CHECK(refused("name: a\n\xff\n") ==
        "job.yaml:2: has bytes that are not UTF-8 text; write such a value as !!binary \"BASE64\"");
  CHECK(refused(std::string("name: a\0b\n", 10)).starts_with("job.yaml:1: has bytes"));
  CHECK(refused("").starts_with("job.yaml: is empty;"));
  CHECK(refused("# nothing\n").starts_with("job.yaml: is empty;"));
  CHECK(refused("name: a\n---\nname: b\n").find("one YAML document") != std::string::npos);
  CHECK(refused("name: *nowhere\n").starts_with("job.yaml:1:"));
}

TEST_CASE("a file made to exhaust the reader is refused at once") {
  CHECK(refused("command: " + std::string(100'000, '[')).starts_with("job.yaml:"));
  std::string laughs = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 12; ++i) {
    std::string row = "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [";
    for (int j = 0; j < 9; ++j) {
      row += (j == 0 ? "*a" : ", *a") + std::to_string(i - 1);
    }
    laughs += row + "]\n";
  }
  CHECK(refused(laughs).find("unknown key 'a0'") != std::string::npos);
  CHECK(refused(",an").find("one YAML document") != std::string::npos); // yaml-cpp's LoadAll hangs
  CHECK(refused("name: &a [*a]\n").starts_with("job.yaml:"));
  CHECK(refused(std::string(5U << 20U, '#')).find("bytes long") != std::string::npos);
}

TEST_CASE("every field is a flag, and flags win over the file") {
  JobSpec job;
  CommandTable table;
  table.name = "submit";
  table.takes_command = true;
  table.rest = &job.command;
  table.options = job_options(job, {"local", "slurm"});
  // All but the type and the command.
  CHECK(table.options.size() + 2 == job_fields().size());
  const std::vector<std::string> args = {"--workers=5", "-e", "B=2", "--grace-period=3s"};
  job = read_job_yaml("name: a\nworkers: 2\nenv: [A=1, B=1]\ncommand: [ls]\n", "f");
  REQUIRE(parse_options(table, args, ParsePass::flags));
  job = resolve(job);
  CHECK(job.name == "a");
  CHECK(job.workers == 5);
  CHECK(job.env == std::vector<std::string>{"A=1", "B=2"});
  CHECK(job.command == std::vector<std::string>{"ls"});
  CHECK(job.grace_period_ms == 3000);
  CHECK_THROWS_WITH_AS(parse_options(table, {"--workers=0"}),
                       "--workers=0: must be between 1 and 4096", UsageError);
  CHECK_THROWS_WITH_AS(parse_options(table, {"--grace-period=2d"}),
                       "--grace-period=2d: must be between 0s and 1h", UsageError);
  CHECK_THROWS_WITH_AS(parse_options(table, {"-b", "slrum"}),
                       "--backend=slrum: must be one of local, slurm: did you mean slurm?",
                       UsageError);
}
