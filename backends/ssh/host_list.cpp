#include "backends/ssh/host_list.h"

#include "submit/errors.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

namespace dtrain::ssh {

namespace {

constexpr int k_most_slots = 4096;
constexpr std::size_t k_most_hosts = 4096;
constexpr std::size_t k_longest_name = 255;
constexpr std::string_view k_blanks = " \t\r";

/// The first of `text` up to `mark`, which is taken away with it.
std::string_view take(std::string_view& text, std::string_view marks) {
  const auto at = std::min(text.find_first_of(marks), text.size());
  const auto first = text.substr(0, at);
  text.remove_prefix(std::min(at + 1, text.size()));
  return first;
}

std::string_view trimmed(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(k_blanks), text.size()));
  return text.substr(0, text.find_last_not_of(k_blanks) + 1);
}

std::optional<int> number(std::string_view text, int most) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && value >= 0 && value <= most
             ? std::optional(value)
             : std::nullopt;
}

/// Where a text is from, for messages: "--hosts=h1,h2", "hosts.txt:3".
struct Reader {
  std::string where;
  std::vector<HostSlots> hosts = {};

  [[noreturn]] void refuse(std::string_view word, std::string_view why) const {
    throw UsageError(fmt::format("{}: '{}' {}", where, printable(word), why));
  }

  void add(std::string_view name, std::string_view slots) {
    const auto count = slots.empty() ? 0 : number(slots, k_most_slots).value_or(-1);
    if (count < 0 || (count == 0 && !slots.empty())) {
      refuse(slots, fmt::format("is no number of slots: give one from 1 to {}", k_most_slots));
    }
    expand(name, name, count);
  }

  /// Each host of "gpu[01-03,7]".
  void expand(std::string_view name, std::string_view whole, int slots) {
    const auto open = name.find('[');
    if (open == std::string_view::npos) {
      add_one(name, whole, slots);
      return;
    }
    const auto close = name.find(']', open);
    if (close == std::string_view::npos) {
      refuse(whole, "has a [ without its ]: ranges are h[1-3]");
    }
    auto ranges = name.substr(open + 1, close - open - 1);
    if (ranges.empty()) {
      refuse(whole, "has no numbers in its []: ranges are h[1-3]");
    }
    while (!ranges.empty()) {
      auto range = take(ranges, ",");
      const auto first_text = take(range, "-");
      const auto last_text = range.empty() ? first_text : range;
      constexpr int k_most = 1'000'000;
      const auto first = number(first_text, k_most);
      const auto last = number(last_text, k_most);
      if (!first || !last || *last < *first) {
        refuse(whole, "has a range that is none: ranges are h[1-3] or h[1,4-6]");
      }
      for (int i = *first; i <= *last; ++i) {
        const auto one = fmt::format("{}{:0{}}{}", name.substr(0, open), i, first_text.size(),
                                     name.substr(close + 1));
        expand(one, whole, slots);
      }
    }
  }

  void add_one(std::string_view name, std::string_view whole, int slots) {
    constexpr std::string_view k_allowed =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.@";
    if (name.empty() || name.size() > k_longest_name || name.front() == '-' ||
        name.find_first_not_of(k_allowed) != std::string_view::npos) {
      refuse(whole, "is no host's name: letters, digits and - _ . @ make one; what else there is "
                    "to say of a host, its port or a jump host, is for ~/.ssh/config");
    }
    if (std::any_of(hosts.begin(), hosts.end(),
                    [&](const HostSlots& host) { return host.name == name; })) {
      refuse(name, "is listed twice: give it once, with its slots");
    }
    if (hosts.size() == k_most_hosts) {
      refuse(whole, fmt::format("is one host too many: {} are the most", k_most_hosts));
    }
    hosts.push_back({std::string(name), slots});
  }
};

/// The comma or blank that ends a host: none in brackets.
std::string_view take_host(std::string_view& text) {
  std::size_t depth = 0;
  std::size_t at = 0;
  for (; at < text.size() && (depth > 0 || text[at] != ','); ++at) {
    depth += text[at] == '[' ? 1 : 0;
    depth -= text[at] == ']' && depth > 0 ? 1 : 0;
  }
  const auto host = text.substr(0, at);
  text.remove_prefix(std::min(at + 1, text.size()));
  return host;
}

} // namespace

std::vector<HostSlots> parse_hosts(std::string_view text) {
  Reader reader{"--hosts"};
  while (!text.empty()) {
    auto host = trimmed(take_host(text));
    const auto name = take(host, ":");
    reader.add(name, host);
  }
  return std::move(reader.hosts);
}

std::vector<HostSlots> parse_hostfile(std::string_view text, std::string_view file) {
  Reader reader{""};
  for (int number = 1; !text.empty(); ++number) {
    auto line = take(text, "\n");
    line = trimmed(take(line, "#"));
    reader.where = fmt::format("--hostfile={}:{}", printable(file), number);
    if (line.empty()) {
      continue;
    }
    auto slots = take(line, k_blanks);
    const auto name = take(slots, ":");
    for (line = trimmed(line); !line.empty(); line = trimmed(line)) {
      auto value = take(line, k_blanks);
      const auto word = value;
      const auto key = take(value, "=");
      if (key == "slots" && slots.empty() && !value.empty()) {
        slots = value;
      } else if ((key != "max_slots" && key != "max-slots") || value.empty()) {
        reader.refuse(word, "is not of a host file: a line is HOST, HOST slots=N or HOST:N");
      }
    }
    reader.add(name, slots);
  }
  if (reader.hosts.empty()) {
    throw UsageError(fmt::format("--hostfile={}: has no host: a line is HOST, HOST slots=N or "
                                 "HOST:N",
                                 printable(file)));
  }
  return std::move(reader.hosts);
}

std::vector<std::string> place_ranks(const std::vector<HostSlots>& hosts, int ranks) {
  std::vector<std::string> placed;
  const bool says =
      std::any_of(hosts.begin(), hosts.end(), [](const HostSlots& host) { return host.slots > 0; });
  const auto count = static_cast<int>(hosts.size());
  for (int i = 0; i < count; ++i) {
    const auto& host = hosts[static_cast<std::size_t>(i)];
    const int share = says ? std::max(host.slots, 1) : ranks / count + (i < ranks % count ? 1 : 0);
    const int left = ranks - static_cast<int>(placed.size());
    placed.insert(placed.end(), static_cast<std::size_t>(std::min(share, left)), host.name);
  }
  if (static_cast<int>(placed.size()) < ranks) {
    throw UsageError(fmt::format("--workers: the job has {} processes to start, and its hosts {} "
                                 "slots: give them more (h1:4, slots=4) or name more hosts",
                                 ranks, placed.size()));
  }
  return placed;
}

} // namespace dtrain::ssh
