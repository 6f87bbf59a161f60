#include "backends/ssh/host_list.h"

#include "../temporary_folder.h"
#include "submit/errors.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <functional>
#include <string>
#include <vector>

using namespace dtrain;
using namespace dtrain::ssh;

namespace {

using Hosts = std::vector<HostSlots>;
using Names = std::vector<std::string>;

std::string refusal_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "taken";
}

std::string refusal_of_list(std::string_view text) {
  return refusal_of([&] { parse_hosts(text); });
}

std::string refusal_of_file(std::string_view text) {
  return refusal_of([&] { parse_hostfile(text, "--hostfile=hosts.txt"); });
}

Hosts chosen(const HostChoice& choice, std::string_view hosts = "h1:4,h2:2,me@h3") {
  return choose_hosts(parse_hosts(hosts), choice);
}

std::string refusal_of_choice(const HostChoice& choice) {
  return refusal_of([&] { chosen(choice); });
}

} // namespace

TEST_CASE("hosts are listed by name, range and slots") {
  CHECK(parse_hosts("h1,me@h2.example.org:4") == Hosts{{"h1", 0}, {"me@h2.example.org", 4}});
  CHECK(parse_hosts("gpu[08-10,2]:2,x") ==
        Hosts{{"gpu08", 2}, {"gpu09", 2}, {"gpu10", 2}, {"gpu2", 2}, {"x", 0}});
  CHECK(parse_hosts("r[1-2]n[1-2]") == Hosts{{"r1n1"}, {"r1n2"}, {"r2n1"}, {"r2n2"}});
  CHECK(parse_hosts("").empty());
}

TEST_CASE("a host file is DeepSpeed's or Open MPI's") {
  CHECK(parse_hostfile("# ours\nh1 slots=4\n\n h2 slots=2 max_slots=8 # two\r\nh3:3\nh[4-5]\n",
                       "--hostfile=hosts.txt") ==
        Hosts{{"h1", 4}, {"h2", 2}, {"h3", 3}, {"h4", 0}, {"h5", 0}});
}

TEST_CASE("a host file may be pdsh's, with lists on a line") {
  CHECK(parse_hostfile("h[1-2],h7\nr[1-2]n[01-02] # two racks\nx[1-2] slots=8\n", "WCOLL=hosts") ==
        Hosts{{"h1"},
              {"h2"},
              {"h7"},
              {"r1n01"},
              {"r1n02"},
              {"r2n01"},
              {"r2n02"},
              {"x1", 8},
              {"x2", 8}});
}

TEST_CASE("a list, and a host file, may name files, as pdsh's do") {
  const test::TemporaryFolder folder;
  folder.write("more", "h3 slots=2\n# include no-such-file\n#include the others\n#include racks\n");
  folder.write("racks", "r[1-2]\n");
  folder.write("loop", "#include loop\n");
  const auto more = folder / "more";
  CHECK(parse_hosts("h1,^" + more + ",h2:4") ==
        Hosts{{"h1"}, {"h3", 2}, {"r1"}, {"r2"}, {"h2", 4}});
  CHECK(read_hostfile("WCOLL", more) == Hosts{{"h3", 2}, {"r1"}, {"r2"}});
  CHECK(chosen({.without = "^" + folder.write("down", "h[1-2]\n")}) == Hosts{{"me@h3"}});
  const auto bad = folder.write("bad", "h1\n\nh[2-\n");
  CHECK(refusal_of_list("^" + bad) ==
        "--hosts: ^" + bad + ":3: 'h[2-': bad range: write h[1-3] or h[1,4-6]");
  CHECK(refusal_of_list("^" + (folder / "none")) ==
        "--hosts: ^" + (folder / "none") + ": cannot be read: No such file or directory");
  CHECK(refusal_of_list("^" + (folder / "loop")).ends_with(": #include loop: includes itself"));
}

TEST_CASE("hosts are excluded by a list, whether they are there or not") {
  CHECK(chosen({.without = "h[2-9]"}) == Hosts{{"h1", 4}});
  CHECK(chosen({.without = "me@h3,h1"}) == Hosts{{"h2", 2}});
  CHECK(chosen({.without = "h1"}, "").empty());
  CHECK(refusal_of_choice({.without = "h[1-3]"}) ==
        "--exclude-hosts: no hosts are left; exclude fewer");
  CHECK(refusal_of_choice({.without = "h[2-"}).starts_with("--exclude-hosts: 'h[2-': bad range"));
}

TEST_CASE("DeepSpeed's include names hosts, and GPUs of them") {
  const HostSlots first{"h1", 2, {"0", "1"}};
  CHECK(chosen({.include = "h3@h1:0,1"}) == Hosts{first, {"me@h3"}});
  CHECK(chosen({.include = "h[1-2]:0"}) == Hosts{{"h1", 1, {"0"}}, {"h2", 1, {"0"}}});
  CHECK(chosen({.include = "h1:0,1@h2"}, "") == Hosts{{"h1", 0, {"0", "1"}}, {"h2"}});
  CHECK(
      refusal_of_choice({.include = "h9:0"}).starts_with("--include: 'h9' is not among the hosts"));
  CHECK(refusal_of_choice({.include = "h1:0,x"}) ==
        "--include: 'h1:0,x': bad GPU 'x': write h1:0,1@h2");
  CHECK(refusal_of_choice({.include = "h1", .exclude = "h2"}) ==
        "--include and --exclude: give one of them");
}

TEST_CASE("DeepSpeed's exclude takes out hosts, or GPUs of them") {
  CHECK(chosen({.exclude = "h1:2@h2"}) == Hosts{{"h1", 3, {}, {"2"}}, {"me@h3"}});
  CHECK(chosen({.exclude = "h2:0,1@h3:1"}) == Hosts{{"h1", 4}, {"me@h3", 0, {}, {"1"}}});
  CHECK(refusal_of_choice({.exclude = "h[1-3]"}) == "--exclude: no hosts are left; exclude fewer");
  CHECK(refusal_of_choice({.exclude = "h9"}).starts_with("--exclude: 'h9' is not among the hosts"));
}

TEST_CASE("a host that is none is refused with its place") {
  CHECK(refusal_of_list("h1,$(reboot)")
            .starts_with("--hosts: invalid host '$(reboot)': use letters"));
  CHECK(
      refusal_of_list("-oProxyCommand=x").starts_with("--hosts: invalid host '-oProxyCommand=x'"));
  CHECK(refusal_of_list("h1;ls").starts_with("--hosts: invalid host 'h1;ls': "));
  CHECK(refusal_of_list("h1,,h2").starts_with("--hosts: invalid host '': "));
  CHECK(refusal_of_list("h[1-2],h2") == "--hosts: 'h2' is listed twice: give it once, with its "
                                        "slots");
  for (const auto* range : {"h[3-1]", "h[1-2", "h[]", "h[x]", "h[1-2]n[2-1]"}) {
    CHECK(refusal_of_list(range) ==
          fmt::format("--hosts: '{}': bad range: write h[1-3] or h[1,4-6]", range));
  }
  CHECK(refusal_of_list("h1:0") == "--hosts: bad slots '0': write a number from 1 to 4096");
  CHECK(refusal_of_list("h[0-999999]").find("too many hosts") != std::string::npos);
  CHECK(
      refusal_of_file("h1\nh2 slot=3\n").starts_with("--hostfile=hosts.txt:2: bad word 'slot=3'"));
  CHECK(refusal_of_file("h1\n\nh1\n").starts_with("--hostfile=hosts.txt:3: 'h1' is listed twice"));
  CHECK(refusal_of_file("h1 slots=x\n").starts_with("--hostfile=hosts.txt:1: bad slots 'x'"));
  CHECK(refusal_of_file("# nothing\n").starts_with("--hostfile=hosts.txt: no hosts in it"));
}

TEST_CASE("ranks of a host stand side by side") {
  CHECK(place_ranks({{"a"}, {"b"}, {"c"}}, 3) == Names{"a", "b", "c"});
  CHECK(place_ranks({{"a"}, {"b"}}, 5) == Names{"a", "a", "a", "b", "b"});
  CHECK(place_ranks({{"a", 3}, {"b"}, {"c", 4}}, 5) == Names{"a", "a", "a", "b", "c"});
  CHECK(place_ranks({{"a"}, {"b"}}, 1) == Names{"a"});
  CHECK(refusal_of([] {
          place_ranks({{"a", 1}, {"b", 1}}, 3);
        }).starts_with("--workers: the job needs 3 slots and its hosts have 2:"));
}
