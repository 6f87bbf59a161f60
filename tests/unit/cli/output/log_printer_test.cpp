#include "cli/output/log_printer.h"

#include <doctest/doctest.h>

using namespace dtrain;

namespace {

struct Printed {
  Stream stream;
  LogPrinter printer;

  explicit Printed(LogPrinter::Format format, Terminal terminal = {},
                   const std::vector<std::string>& instances = {"w-0", "worker-1"})
      : printer((stream.set_terminal(terminal), stream), instances, format) {}

  void line(const char* instance, const char* text) {
    printer.print({0, instance, false, true, text});
  }
  void part(const char* instance, const char* text) {
    printer.print({0, instance, false, false, text});
  }
};

} // namespace

TEST_CASE("prefixes are padded to the longest name") {
  Printed printed({.prefix = true});
  printed.line("w-0", "a");
  printed.line("worker-1", "b");
  CHECK(printed.stream.text() == "w-0      | a\nworker-1 | b\n");
}

TEST_CASE("each instance has its colour, and only on a terminal that shows it") {
  Printed printed({.prefix = true}, {.is_terminal = true, .colour = true});
  printed.line("w-0", "a");
  printed.line("worker-1", "b");
  CHECK(printed.stream.text() == "\x1b[36mw-0      |\x1b[0m a\n\x1b[33mworker-1 |\x1b[0m b\n");
}

TEST_CASE("in a pipe an unfinished line waits for its end and never mixes with another's") {
  Printed printed({.prefix = true, .flush_lines = true});
  printed.part("w-0", "10%\r");
  printed.line("worker-1", "b");
  printed.part("w-0", "20%");
  printed.line("w-0", " done");
  printed.part("worker-1", "no end");
  printed.printer.finish();
  CHECK(printed.stream.text() == "worker-1 | b\nw-0      | 10%\r20% done\nworker-1 | no end\n");
}

TEST_CASE("on a terminal an unfinished line stays at the bottom and gives way to whole ones") {
  Printed printed({.prefix = true, .flush_lines = true}, {.is_terminal = true});
  printed.part("w-0", "10%\r");
  printed.line("worker-1", "b");
  printed.part("w-0", "20%\r");
  printed.line("w-0", "done");
  CHECK(printed.stream.text() == "\r\x1b[Kw-0      | 10%"
                                 "\r\x1b[Kworker-1 | b\nw-0      | 10%"
                                 "\r\x1b[Kw-0      | 20%"
                                 "\r\x1b[Kw-0      | done\n");
}

TEST_CASE("an unfinished line is cut at the screen's edge, not inside a character") {
  Printed printed({.prefix = false, .flush_lines = true}, {.is_terminal = true, .width = 6});
  printed.part("w-0", "abcdé and more");
  CHECK(printed.stream.text() == "\r\x1b[Kabcd");
}

TEST_CASE("one instance's parts are written as they come, where no other's line could mix in") {
  Printed printed({.prefix = false}, {}, {"w-0"});
  printed.part("w-0", "10%\r");
  printed.part("w-0", "20%");
  CHECK(printed.stream.text() == "10%\r20%");
  printed.line("w-0", " done");
  printed.part("w-0", "no end");
  printed.printer.finish();
  CHECK(printed.stream.text() == "10%\r20% done\nno end\n");
}

TEST_CASE("a line without end is broken after a MiB, not held whole") {
  const std::string part(16384, 'x');
  for (const bool is_terminal : {false, true}) {
    Printed printed({.prefix = true, .flush_lines = false}, {.is_terminal = is_terminal});
    for (int i = 0; i < 65; ++i) {
      printed.part("w-0", part.c_str());
    }
    const std::string& text = printed.stream.text();
    CHECK(text.size() == std::string("w-0      | \n").size() + 65 * part.size());
    printed.printer.finish();
    CHECK(printed.stream.text().size() == text.size());
  }
}

TEST_CASE("a progress bar without end is held only as far as it is seen") {
  Printed printed({.prefix = false, .flush_lines = false}, {.is_terminal = true});
  for (int i = 0; i < 300; ++i) {
    printed.part("w-0", ("\r" + std::string(9999, 'x')).c_str());
  }
  CHECK(printed.stream.text().empty());
  printed.line("w-0", "\rdone");
  CHECK(printed.stream.text() == "done\n");
}
