#include "backends/ssh/host_list.h"

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
  return refusal_of([&] { parse_hostfile(text, "hosts.txt"); });
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
                       "hosts.txt") ==
        Hosts{{"h1", 4}, {"h2", 2}, {"h3", 3}, {"h4", 0}, {"h5", 0}});
}

TEST_CASE("a host that is none is refused with its place") {
  CHECK(refusal_of_list("h1,$(reboot)").starts_with("--hosts: '$(reboot)' is no host's name"));
  CHECK(refusal_of_list("-oProxyCommand=x").starts_with("--hosts: '-oProxyCommand=x' is no host"));
  CHECK(refusal_of_list("h1;ls").starts_with("--hosts: 'h1;ls' is no host's name"));
  CHECK(refusal_of_list("h1,,h2").starts_with("--hosts: '' is no host's name"));
  CHECK(refusal_of_list("h[1-2],h2") == "--hosts: 'h2' is listed twice: give it once, with its "
                                        "slots");
  CHECK(refusal_of_list("h[3-1]").starts_with("--hosts: 'h[3-1]' has a range that is none"));
  CHECK(refusal_of_list("h[1-2").starts_with("--hosts: 'h[1-2' has a [ without its ]"));
  CHECK(refusal_of_list("h1:0").starts_with("--hosts: '0' is no number of slots"));
  CHECK(refusal_of_list("h[0-999999]").find("one host too many") != std::string::npos);
  CHECK(
      refusal_of_file("h1\nh2 slot=3\n").starts_with("--hostfile=hosts.txt:2: 'slot=3' is not of"));
  CHECK(refusal_of_file("h1\n\nh1\n").starts_with("--hostfile=hosts.txt:3: 'h1' is listed twice"));
  CHECK(refusal_of_file("h1 slots=x\n").starts_with("--hostfile=hosts.txt:1: 'x' is no number"));
  CHECK(refusal_of_file("# nothing\n").starts_with("--hostfile=hosts.txt: has no host"));
}

TEST_CASE("ranks of a host stand side by side") {
  CHECK(place_ranks({{"a"}, {"b"}, {"c"}}, 3) == Names{"a", "b", "c"});
  CHECK(place_ranks({{"a"}, {"b"}}, 5) == Names{"a", "a", "a", "b", "b"});
  CHECK(place_ranks({{"a", 3}, {"b"}, {"c", 4}}, 5) == Names{"a", "a", "a", "b", "c"});
  CHECK(place_ranks({{"a"}, {"b"}}, 1) == Names{"a"});
  CHECK(refusal_of([] {
          place_ranks({{"a", 1}, {"b", 1}}, 3);
        }).starts_with("--workers: the job has 3 processes to start, and its hosts 2 slots"));
}
