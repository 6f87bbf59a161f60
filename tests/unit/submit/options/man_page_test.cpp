#include "submit/options/man_page.h"

#include <doctest/doctest.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>

using namespace dtrain;

namespace {

/// mandoc's warnings about `page`; empty where it has none, or is not here.
std::string lint(const std::string& page) {
  std::string path = "/tmp/dtrain-man-XXXXXX";
  const int fd = mkstemp(path.data());
  REQUIRE(fd >= 0);
  FILE* file = fdopen(fd, "w");
  fputs(page.c_str(), file);
  fclose(file);
  const std::string command =
      "command -v mandoc >/dev/null || exit 0; mandoc -T lint -W warning " + path;
  FILE* pipe = popen(command.c_str(), "r");
  std::string out;
  for (int c = 0; (c = fgetc(pipe)) != EOF;) {
    out += static_cast<char>(c);
  }
  pclose(pipe);
  std::remove(path.c_str());
  return out;
}

} // namespace

TEST_CASE("a page made from a table passes mandoc's lint and names every option") {
  std::string name;
  int workers = 0;
  bool wait = false;
  std::vector<std::string> jobs;
  const CommandTable table = {
      .name = "template show",
      .summary = "Show it's \\ dot",
      .description =
          "First paragraph, with 'quotes' and a \\backslash. It goes on.\n\n.Second, with …\n  "
          "code\n  more\nThird.",
      .examples = {"# comment", "dtrain x -- 'a b' ~/c", ".hidden"},
      .options =
          {{.flags = "JOB", .target = &jobs, .help = "The Jobs", .positional = true},
           {.flags = "-n,--namespace",
            .target = &name,
            .metavar = "NAME",
            .help = "Name",
            .env = "DTRAIN_NAMESPACE"},
           {.flags = "--Ar",
            .target = &workers,
            .metavar = "Nm",
            .help = "Op Fl \"x\"",
            .group = "Other"},
           {.flags = "--wait", .target = &wait, .help = "Wait", .choices = {}},
           {.flags = "--old", .target = &wait, .help = "Old", .group = "Old ones", .hidden = true}},
      .takes_command = true};
  const ManContext context = {.program = "dtrain",
                              .version = "1.0",
                              .date = "November 21, 2026",
                              .see_also = {"dtrain 1", "dtrain-environment 7"}};
  const std::string page = man_page(context, table);
  CHECK(lint(page) == "");
  CHECK(page.find("Fl \\-namespace Ns = Ns Ar \\&NAME") != std::string::npos);
  CHECK(page.find(".Ev DTRAIN_NAMESPACE") != std::string::npos);
  CHECK(page.find("Old ones") == std::string::npos);
  CHECK(man_page_name("dtrain", table) == "dtrain-template-show");

  CommandTable submit = table;
  submit.name = "submit";
  CHECK(lint(man_page(context, submit)) == "");
  CHECK(man_page(context, submit).find("maxRestarts") != std::string::npos);
  CHECK(lint(man_overview(context, "submit jobs", "What it is.", {table, submit})) == "");
}
