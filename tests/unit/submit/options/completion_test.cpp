#include "submit/options/completion.h"

#include "submit/errors.h"

#include <doctest/doctest.h>

#include <stdexcept>

using namespace dtrain;

namespace {

using Strings = std::vector<std::string>;

struct Fixture {
  std::string output;
  std::string name_space;
  std::string file;
  std::string dir;
  std::string instance;
  std::string job;
  std::string shell;
  bool wait = false;
  Strings env;
  Strings jobs;
  Strings seen_args;
  std::vector<CommandTable> commands;

  Fixture() {
    commands.push_back(
        {.name = "submit",
         .summary = "Submit a job",
         .options = {{.flags = "-o,--output",
                      .target = &output,
                      .metavar = "FORMAT",
                      .help = "Format",
                      .choices = {"json", "yaml"}},
                     {.flags = "-f,--file",
                      .target = &file,
                      .metavar = "FILE",
                      .help = "File",
                      .complete = Complete::file},
                     {.flags = "--dir",
                      .target = &dir,
                      .metavar = "DIR",
                      .help = "Folder",
                      .complete = Complete::directory},
                     {.flags = "--wait", .target = &wait, .metavar = "", .help = "Wait"},
                     {.flags = "-e,--env", .target = &env, .metavar = "K=V", .help = "Env"}},
         .takes_command = true});
    commands.push_back({.name = "logs",
                        .summary = "Print logs",
                        .options = {{.flags = "JOB",
                                     .target = &job,
                                     .metavar = "",
                                     .help = "Job",
                                     .complete = Complete::job,
                                     .positional = true},
                                    {.flags = "-i,--instance",
                                     .target = &instance,
                                     .metavar = "NAME",
                                     .help = "Instance",
                                     .complete = Complete::instance}}});
    commands.push_back({.name = "template list", .summary = "List templates"});
    commands.push_back({.name = "template show", .summary = "Show a template"});
  }

  Completions run(const Strings& words) {
    return complete(commands, words, [&](const Option& option, const Strings& args) {
      seen_args = args;
      if (option.complete == Complete::job) {
        return std::vector<Candidate>{{"mnist", "RUNNING"}, {"bert:1", "FAILED"}};
      }
      if (option.complete == Complete::instance) {
        return std::vector<Candidate>{{"worker-0", ""}, {"worker-1", ""}};
      }
      throw std::runtime_error("no such names");
    });
  }

  Strings words(const Strings& typed) {
    Strings list;
    for (const Candidate& candidate : run(typed).candidates) {
      list.push_back(candidate.word);
    }
    return list;
  }
};

} // namespace

TEST_CASE("commands complete, and the second word of those that have one") {
  Fixture f;
  CHECK(f.words({""}) == Strings{"submit", "logs", "template", "--help", "--version"});
  CHECK(f.words({"s"}) == Strings{"submit"});
  CHECK(f.words({"template", ""}) == Strings{"list", "show"});
  CHECK(f.words({"template", "s"}) == Strings{"show"});
  CHECK(f.words({"nonsense", ""}).empty());
  CHECK(f.run({"s"}).candidates[0].description == "Submit a job");
  CHECK(f.words({}).empty());
}

TEST_CASE("flags complete with their = and without a space, each once but lists") {
  Fixture f;
  CHECK(f.words({"submit", "--"}) ==
        Strings{"--output=", "--file=", "--dir=", "--wait", "--env=", "--help"});
  CHECK(f.words({"submit", "--wait", "-o", "json", "--env=A=1", "--e"}) == Strings{"--env="});
  CHECK(f.words({"submit", "--wait", "--w"}).empty());
  CHECK(f.run({"submit", "--ou"}).no_space);
  CHECK_FALSE(f.run({"submit", "--wa"}).no_space);
}

TEST_CASE("values complete behind = and behind a space") {
  Fixture f;
  CHECK(f.words({"submit", "--output=j"}) == Strings{"--output=json"});
  CHECK(f.words({"submit", "--output", ""}) == Strings{"json", "yaml"});
  CHECK(f.words({"submit", "-o", "y"}) == Strings{"yaml"});
  CHECK(f.run({"submit", "-f", ""}).files);
  CHECK(f.run({"submit", "--file=x"}).files);
  CHECK(f.run({"submit", "--dir="}).directories);
  CHECK(f.words({"submit", "--nonsense=x"}).empty());
}

TEST_CASE("names come from their source, which sees the words before") {
  Fixture f;
  CHECK(f.words({"logs", ""}) == Strings{"mnist", "bert:1"});
  CHECK(f.words({"logs", "bert:"}) == Strings{"bert:1"});
  CHECK(f.words({"logs", "mnist", "-i", ""}) == Strings{"worker-0", "worker-1"});
  CHECK(f.seen_args == Strings{"mnist", "-i"});
  CHECK(f.words({"logs", "mnist", "--instance=worker-1"}) == Strings{"--instance=worker-1"});
  CHECK(f.words({"logs", "mnist", ""}).empty());
}

TEST_CASE("behind -- come the command's files") {
  Fixture f;
  CHECK(f.words({"submit", ""}) == Strings{"--"});
  CHECK(f.run({"submit", "--", "py"}).files);
  CHECK(f.words({"submit", "--", "python", "--wa"}).empty());
}

TEST_CASE("a source that fails is silent") {
  Fixture f;
  f.commands[1].options[0].complete = Complete::profile;
  CHECK(f.words({"logs", ""}).empty());
}

TEST_CASE("what is printed has a line of directives and a line a candidate") {
  CHECK(completion_text(
            {.candidates = {{"a", "b\nc"}, {"x\ny", ""}}, .files = true, .no_space = true}) ==
        "files nospace\na\tb\\nc\n");
  CHECK(completion_text({}) == "\n");
}

TEST_CASE("typed words lose their quotes, open ones too") {
  CHECK(unquote_typed("a\\ b'c d'\"e\\\"f\\g\"") == "a bc de\"f\\g");
  CHECK(unquote_typed("--msg='two wo") == "--msg=two wo");
  CHECK(unquote_typed("end\\") == "end\\");
}

TEST_CASE("there is a script for each shell") {
  for (const std::string& shell : completion_shells()) {
    CHECK(completion_script(shell).find("__complete " + shell) != std::string_view::npos);
  }
  CHECK_THROWS_AS(completion_script("tcsh"), UsageError);
}
