#include "backends/ssh/host_facts.h"

#include "backends/support/logs/time_text.h"
#include "submit/errors.h"

#include <charconv>
#include <sstream>

namespace dtrain::ssh {

namespace {

template <class Number>
Number number_of(const std::string& text, int base) {
  Number number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number, base);
  return number;
}

} // namespace

HostFacts read_host_facts(std::string_view text) {
  constexpr int k_decimal = 10;
  constexpr int k_hex = 16;
  HostFacts facts;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    const auto rest = [&](std::string_view key) {
      return line.starts_with(key) ? std::optional(printable(line.substr(key.size())))
                                   : std::nullopt;
    };
    if (line.starts_with("lacks ") || line.starts_with("cannot ")) {
      facts.lacks.push_back(printable(line));
    } else if (const auto digest = rest("wants ")) {
      facts.wants.push_back(*digest);
    } else if (const auto address = rest("address ")) {
      facts.address = *address;
    } else if (const auto sshd = rest("sshd ")) {
      facts.sshd = *sshd;
    } else if (const auto gpus = rest("gpus ")) {
      facts.gpus = gpus->substr(0, gpus->find_last_not_of(',') + 1);
    } else if (const auto machine = rest("machine ")) {
      facts.machine = *machine;
    } else if (const auto clock = rest("clock ")) {
      facts.ahead = number_of<std::int64_t>(*clock, k_decimal) - time_now() / k_second;
    } else if (const auto port = rest("port ")) {
      facts.ports.insert(number_of<int>(*port, k_hex));
    }
  }
  return facts;
}

} // namespace dtrain::ssh
