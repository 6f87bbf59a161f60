// What a new engine needs: a folder and a line in the registry. All else follows from its table.
#include "backends/engine.h"
#include "cli/commands.h"
#include "submit/errors.h"
#include "submit/fields/job_fields.h"
#include "submit/options/man_page.h"
#include "tests/unit/cli/fake_backend.h"

#include <doctest/doctest.h>

#include <set>
#include <utility>

using namespace dtrain;

namespace {

constexpr int k_red = 7;

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// dtrain with its own registry.
struct Program {
  test::TempFolder folder;
  int status = -1;
  std::string out;
  std::string err;

  Program& run(const std::vector<std::string>& words) {
    Stream out_stream;
    Stream err_stream;
    Context context{out_stream, err_stream, make_backend, [] { return test::k_now; },
                    folder.path / "config.yaml"};
    status = run_program(context, words);
    out = out_stream.text();
    err = err_stream.text();
    return *this;
  }
};

} // namespace

TEST_CASE("an engine's flags and name are in --help, Tab, the man page and profiles") {
  Program program;
  for (const char* command : {"submit", "list", "check"}) {
    CAPTURE(command);
    CHECK(
        has(program.run({command, command == std::string("submit") ? "--help=all" : "--help"}).out,
            "--toy-box=BOX"));
    CHECK(has(program.run({"__complete", "bash", command, "--toy-"}).out, "--toy-box="));
    CHECK(has(program.run({"__complete", "bash", command, "--backend="}).out, "--backend=toy"));
  }
  CHECK(has(program.run({"submit", "--help=job"}).out, "wooden"));
  CHECK(program.run({"__complete", "bash", "list", "--toy-box", ""}).out == "\nblue\t\nred\t\n");
  const auto submit = submit_command();
  const std::string page = man_page(
      {.program = "dtrain", .version = "1", .date = "today", .see_also = {}}, submit.table);
  CHECK(has(page, "toy\\-box"));
  CHECK(has(page, "toy: each a wooden horse"));
  CHECK(program.run({"config", "set", "toy-box", "red"}).status == 0);
  CHECK(has(program.run({"check", "-b", "toy"}).out, "Toy box           at red"));
  CHECK(
      has(program.run({"check", "-b", "toy", "--toy-box=blue"}).out, "Toy box           at blue"));
}

TEST_CASE("an engine refuses what its table does not take, with its own reason") {
  Program program;
  const auto refusal = [&](const std::string& flag) {
    program.run({"submit", "-b", "toy", flag, "--dry-run", "--", "true"});
    CHECK(program.status == 2);
    return program.err;
  };
  CHECK(refusal("--ps=1") == "dtrain submit: --ps: the toy backend plays alone; drop it, or "
                             "use --backend=local or kubernetes\n");
  CHECK(has(refusal("--queue=q"), "--queue: the toy backend does not support it; drop it, or "
                                  "use --backend=kubernetes"));
  CHECK(program.run({"submit", "-b", "toy", "--workers=2", "--dry-run", "--", "true"}).err == "");
  program.run({"submit", "-b", "toy", "--image=x", "--dry-run", "--", "true"});
  CHECK(program.status == 0);
  CHECK(program.err == "dtrain submit: --image: not used: the toy backend has no pictures\n");
  CHECK(has(program.run({"submit", "-b", "top", "--", "true"}).err, "did you mean toy?"));
}

TEST_CASE("an engine's table says what it cannot do, and help, check, Tab and commands know") {
  Program program;
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"cp", "-b", "toy", "a:b", "."},
        {"exec", "-b", "toy", "a", "--", "true"},
        {"attach", "-b", "toy", "a"},
        {"top", "node", "-b", "toy"},
        {"top", "job", "-b", "toy"},
        {"scale", "-b", "toy", "a", "--workers=2"}}) {
    CAPTURE(words[0]);
    CHECK(program.run(words).status == 2);
    CHECK(has(program.err, ": the toy backend "));
  }
  CHECK(has(program.run({"cp", "--help"}).out, "The toy backend lets no toy out"));
  CHECK(has(program.run({"check", "-b", "toy"}).out, "- cp                not on toy: it lets no"));
  CHECK_FALSE(has(program.run({"__complete", "bash", "cp", "-b", ""}).out, "toy"));
  CHECK(has(program.run({"submit", "--help=all", "-b", "toy"}).out, "wooden"));
  CHECK_FALSE(has(program.out, "--memory"));
}

TEST_CASE("what only a cluster can do is refused by its flag, not dropped") {
  JobSpec job;
  job.backend = "local";
  job.memory = "16Gi";
  CHECK_THROWS_WITH_AS(check_fields(job),
                       "--memory: the local backend reserves no memory; drop it, or use "
                       "--backend=kubernetes",
                       UsageError);
  job.backend = "kubernetes";
  CHECK(check_fields(job).empty());
  job.log_limit = "1Gi";
  CHECK_THROWS_AS(check_fields(job), UsageError);
}

TEST_CASE("engines' tables name fields that there are, each once") {
  std::set<std::string_view> known;
  for (const JobField& field : job_fields()) {
    known.insert(field.key);
  }
  for (const Engine* engine : engines()) {
    std::set<std::string_view> seen;
    for (const FieldUse& field : engine->fields) {
      CAPTURE(field.key);
      CHECK(known.contains(field.key));
      CHECK(seen.insert(field.key).second);
      CHECK(field.why.empty() == (field.kind == FieldUse::Kind::taken));
    }
    for (const FieldNote& note : engine->notes) {
      CAPTURE(note.key);
      CHECK(engine->takes(note.key));
    }
  }
}

TEST_CASE("a flag of an engine's own is that engine's alone") {
  Program program;
  CHECK(has(program.run({"submit", "--help=toy"}).out, "--toy-color=COLOR"));
  CHECK(has(program.run({"__complete", "bash", "submit", "--toy-c"}).out, "--toy-color="));
  program.run({"submit", "-b", "local", "--toy-color=red", "--", "true"});
  CHECK(program.status == 2);
  CHECK(has(program.err, "--toy-color: the local backend does not support it; drop it, or use "
                         "--backend=toy"));
  JobSpec job;
  job.backend = "toy";
  Member<std::string>{.key = "toy-color"}(job) = "a=b";
  CHECK(check_fields(job).empty());
  CHECK(engine_value(job, "toy-color") == "a=b");
  CHECK(engine_value(job, "toy") == "");
  CHECK(read_job_yaml(write_job_yaml(job), "job.yaml") == job);
  CHECK(read_job_yaml("backend: toy\nengineOptions: [toy-color=red, toy-color=a=b]\n",
                      "job.yaml") == job);
}

TEST_CASE(
    "options keep pointing at what engines bring when a job is assigned, and then compares equal") {
  const Member<int> color = {.key = "color", .standard = &k_red};
  JobSpec job;
  int& value = color(job);
  CHECK(value == k_red);
  CHECK(job == JobSpec());
  value = 1;
  CHECK(job != JobSpec());
  JobSpec other;
  color(other) = 2;
  job = other;
  CHECK(value == 2);
  CHECK(job == other);
  job = JobSpec();
  CHECK(value == k_red);
  CHECK(color(std::as_const(job)) == k_red);
}

TEST_CASE("options keep pointing at their values when a choice of engines is assigned") {
  EngineAccess access;
  std::string& value = access["toy-box"];
  value = "red";
  CHECK(access.flags() == " --toy-box='red'");
  access = EngineAccess();
  CHECK(value.empty());
  EngineAccess other;
  other["toy-box"] = "two words";
  access = other;
  CHECK(value == "two words");
  CHECK(access.flags() == " --toy-box='two words'");
}
