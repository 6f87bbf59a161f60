#include "submit/options/option_table.h"

#include "submit/errors.h"

#include <doctest/doctest.h>

#include <cstdlib>

using namespace dtrain;

namespace {

using Strings = std::vector<std::string>;

/// A command with one option of each kind.
struct Fixture {
  std::string name_space = "default";
  std::string output;
  std::optional<std::string> since;
  int workers = 1;
  std::int64_t tail = -1;
  double rate = 0.5;
  double warmup = 10;
  bool wait = false;
  Strings env;
  Strings jobs;
  Strings rest;
  CommandTable table;

  Fixture() {
    table.name = "submit";
    table.options = {
        {.flags = "-n,--namespace",
         .target = &name_space,
         .metavar = "NAME",
         .help = "Namespace",
         .env = "DTRAIN_TEST_NAMESPACE"},
        {.flags = "-o,--output",
         .target = &output,
         .metavar = "FORMAT",
         .help = "Format",
         .choices = {"wide", "json", "yaml"}},
        {.flags = "--since", .target = &since, .metavar = "TIME", .help = "Since"},
        {.flags = "--workers",
         .target = &workers,
         .metavar = "N",
         .help = "Workers",
         .group = "Job",
         .minimum = 1,
         .maximum = 4096},
        {.flags = "--tail", .target = &tail, .metavar = "N", .help = "Lines", .minimum = -1},
        {.flags = "--rate",
         .target = &rate,
         .metavar = "R",
         .help = "Rate",
         .minimum = 0,
         .maximum = 1},
        {.flags = "--warmup", .target = &warmup, .metavar = "N", .help = "Steps"},
        {.flags = "-w,--wait", .target = &wait, .metavar = "", .help = "Wait"},
        {.flags = "-e,--env", .target = &env, .metavar = "K=V", .help = "Environment"},
    };
    table.takes_command = true;
    table.rest = &rest;
  }

  bool parse(const Strings& args, ParsePass pass = ParsePass::all) {
    return parse_options(table, args, pass);
  }

  std::string refused(const Strings& args) {
    try {
      parse(args);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "accepted";
  }
};

} // namespace

TEST_CASE("every form of a flag sets its target") {
  Fixture f;
  REQUIRE(
      f.parse({"-n", "a", "--output=json", "--workers", "3", "-w", "--rate=0.25", "--since=1h"}));
  CHECK(f.name_space == "a");
  CHECK(f.output == "json");
  CHECK(f.workers == 3);
  CHECK(f.wait);
  CHECK(f.rate == 0.25);
  CHECK(f.since == "1h");
  REQUIRE(f.parse({"-nb", "--wait=false", "--tail", "-1"}));
  CHECK(f.name_space == "b");
  CHECK_FALSE(f.wait);
  CHECK(f.tail == -1);
}

TEST_CASE("of a repeated flag the last counts and a list grows") {
  Fixture f;
  REQUIRE(f.parse(
      {"--workers=2", "--workers=5", "-e", "A=1", "--env=[x,y]", "-e", "--workers=9", "--env="}));
  CHECK(f.workers == 5);
  CHECK(f.env == Strings{"A=1", "[x,y]", "--workers=9", ""});
}

TEST_CASE("an empty value is a value") {
  Fixture f;
  REQUIRE(f.parse({"--namespace=", "--wait"}));
  CHECK(f.name_space.empty());
  CHECK(f.wait);
}

TEST_CASE("everything after -- is the command, byte for byte") {
  Fixture f;
  const Strings command = {"--",       "python", "-h", "--help", "", "a'b\"c\n$x {{y}} #z",
                           "\xff\xfe", "--"};
  Strings args = {"--workers=2", "--"};
  args.insert(args.end(), command.begin(), command.end());
  REQUIRE(f.parse(args));
  CHECK(f.rest == command);
  CHECK(f.workers == 2);
}

TEST_CASE("an unknown flag is refused with the spelling it is near to") {
  Fixture f;
  CHECK(f.refused({"--wokers=3"}) == "unknown flag --wokers: did you mean --workers?");
  CHECK(f.refused({"--wokers", "3"}) == "unknown flag --wokers: did you mean --workers?");
  CHECK(f.refused({"--namesapce=x"}) == "unknown flag --namesapce: did you mean --namespace?");
  CHECK(f.refused({"--name"}) == "unknown flag --name: did you mean --namespace?");
  CHECK(f.refused({"--frobnicate"}) ==
        "unknown flag --frobnicate: see --help; the command's own flags go after --, as in "
        "-- --frobnicate");
  CHECK(f.refused({"--a\nb"}) ==
        "unknown flag --a\\nb: see --help; the command's own flags go after --, as in -- "
        "--a\\nb");
}

TEST_CASE("a number out of range is refused with flag, value and range") {
  Fixture f;
  CHECK(f.refused({"--workers=0"}) == "--workers=0: must be between 1 and 4096");
  CHECK(f.refused({"--workers=1000000000"}) == "--workers=1000000000: must be between 1 and 4096");
  CHECK(f.refused({"--workers=99999999999999999999"}) ==
        "--workers=99999999999999999999: must be between 1 and 4096");
  CHECK(f.refused({"--workers=3x"}) == "--workers=3x: not a whole number");
  CHECK(f.refused({"--workers="}) == "--workers=: not a whole number");
  CHECK(f.refused({"--tail=-2"}) == "--tail=-2: must be -1 or more");
  CHECK(f.refused({"--rate=nan"}) == "--rate=nan: must be between 0 and 1");
  for (const std::string huge : {"--warmup=inf", "--warmup=1e999"}) {
    CHECK(f.refused({huge}) == huge + ": must be a finite number");
  }
  CHECK(f.refused({"--rate=half"}) == "--rate=half: not a number");
}

TEST_CASE("a value that is no choice is refused with the choices") {
  Fixture f;
  CHECK(f.refused({"-o", "jsn"}) ==
        "--output=jsn: must be one of wide, json, yaml: did you mean json?");
}

TEST_CASE("a refused command line sets nothing") {
  Fixture f;
  CHECK(f.refused({"--workers=7", "-e", "A=1", "--tail=x"}) == "--tail=x: not a whole number");
  CHECK(f.workers == 1);
  CHECK(f.env.empty());
}

TEST_CASE("a flag without its value is refused by name") {
  Fixture f;
  CHECK(f.refused({"--wait", "--workers"}) == "flag --workers needs a value");
  CHECK(f.refused({"--wait=maybe"}) == "--wait=maybe: must be true or false");
}

TEST_CASE("--help wins over everything before the command and sets nothing") {
  Fixture f;
  CHECK_FALSE(f.parse({"--workers=3", "--help"}));
  CHECK_FALSE(f.parse({"-h"}));
  CHECK(f.workers == 1);
  CHECK(f.parse({"--", "--help"}));
}

TEST_CASE("words fill the positionals in order, and one too many is refused") {
  Fixture f;
  CHECK(f.refused({"python", "train.py"}) ==
        "unexpected argument 'python': the command goes after --, as in -- python");
  CHECK(f.refused({"sh", "-c", "exit 3"}) ==
        "unknown flag -c: see --help; the command's own flags go after --, as in -- -c");
  std::string verb;
  f.table.takes_command = false;
  f.table.options.push_back({.flags = "VERB",
                             .target = &verb,
                             .metavar = "",
                             .help = "what to do",
                             .required = true,
                             .positional = true});
  CHECK(f.refused({"--wait"}) == "VERB is missing: what to do");
  CHECK(f.refused({"a", "b"}) == "unexpected argument 'b'");
  f.table.options.push_back(
      {.flags = "JOB", .target = &f.jobs, .metavar = "", .help = "jobs", .positional = true});
  REQUIRE(f.parse({"del", "a", "--wait", "b", "--", "--c"}));
  CHECK(verb == "del");
  CHECK(f.jobs == Strings{"a", "b", "--c"});
}

TEST_CASE("the environment gives a default that a flag overrides") {
  Fixture f;
  setenv("DTRAIN_TEST_NAMESPACE", "from-env", 1);
  REQUIRE(f.parse({}));
  CHECK(f.name_space == "from-env");
  REQUIRE(f.parse({"-n", "flag"}));
  CHECK(f.name_space == "flag");
  f.name_space = "from-file";
  REQUIRE(f.parse({"--workers=2"}, ParsePass::flags));
  CHECK(f.name_space == "from-file");
  f.workers = 1;
  REQUIRE(f.parse({"--workers=2"}, ParsePass::environment));
  CHECK(f.name_space == "from-env");
  CHECK(f.workers == 1);
  unsetenv("DTRAIN_TEST_NAMESPACE");
}

TEST_CASE("help is grouped, aligned and wrapped to the terminal") {
  Fixture f;
  f.table.summary = "Submit a job";
  f.table.description = "Runs a command as the ranks of a job, wherever the backend puts them.";
  f.table.examples = {"# Three workers", "dtrain submit --workers=3 -- python train.py"};
  const std::string text = help_text("dtrain", f.table, 60);
  CHECK(text.starts_with("Usage: dtrain submit [flags] [-- COMMAND…]\n\nRuns a command"));
  CHECK(text.find("\nJob:\n      --workers=N") != std::string::npos);
  CHECK(text.find("  -n, --namespace=NAME  Namespace [$DTRAIN_TEST_NAMESPACE]\n") !=
        std::string::npos);
  CHECK(text.find("Format: wide, json, yaml\n") != std::string::npos);
  CHECK(text.find("  -h, --help") != std::string::npos);
  CHECK(text.ends_with(
      "Examples:\n  # Three workers\n  dtrain submit --workers=3 -- python train.py\n"));
  std::size_t begin = 0;
  while (begin < text.size()) {
    const std::size_t end = text.find('\n', begin);
    CHECK(end - begin <= 62); // bytes; … is three
    begin = end + 1;
  }
}

TEST_CASE("printable keeps a message on one line") {
  CHECK(printable("a\nb\tc\x1b[31m\x7f") == "a\\nb\\tc\\x1b[31m\\x7f");
  CHECK(printable("\xff\xc3\xa9\xc0\xaf") == "\\xff\xc3\xa9\\xc0\\xaf");
  CHECK(printable("\xc2\x9b") == "\\xc2\\x9b");
}
