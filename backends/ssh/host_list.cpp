#include "backends/ssh/host_list.h"

#include "backends/ssh/ssh_command.h"
#include "backends/supervised/programs.h"
#include "backends/support/os/files.h"
#include "backends/support/os/subprocess.h"
#include "submit/errors.h"
#include "submit/text/trimmed.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <utility>

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

std::optional<int> number(std::string_view text, int most) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && value >= 0 && value <= most
             ? std::optional(value)
             : std::nullopt;
}

/// The host that a comma ends, but for one in brackets.
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

/// "h1" of "me@h1".
std::string_view without_user(std::string_view name) { return name.substr(name.rfind('@') + 1); }

/// Hosts with an attribute of genders, as a host list.
std::string hosts_with(const std::string& where, std::string_view attribute) {
  constexpr std::chrono::seconds k_limit{10};
  const auto nodeattr = find_program("nodeattr");
  if (nodeattr.empty()) {
    throw UsageError(fmt::format("{}: genders:{}: nodeattr is not installed here; install genders, "
                                 "or name the hosts",
                                 where, printable(attribute)));
  }
  const auto result =
      run_command({.argv = {nodeattr, "-q", std::string(attribute)}, .limit = k_limit});
  auto list = std::string(trimmed(last_line(result.out)));
  if (!result.ending.good() || list.empty()) {
    throw UsageError(fmt::format(
        "{}: genders:{}: {}", where, printable(attribute),
        result.ending.good() ? "no host has this attribute; nodeattr -l lists all attributes"
                             : last_line(result.errors)));
  }
  return list;
}

/// Reads host lists; `from` names their source in messages: "--hosts", "--hostfile=hosts.txt:3".
struct Reader {
  std::string where;
  std::vector<HostSlots> hosts = {};
  int files = 0; ///< Nested files, each naming the next.

  template <typename... Parts>
  [[noreturn]] void refuse(fmt::format_string<Parts...> text, Parts&&... parts) const {
    throw UsageError(where + ": " + fmt::format(text, std::forward<Parts>(parts)...));
  }

  /// "h1,h2:4,gpu[01-16]"; `slots`: of those that do not say theirs.
  void add_list(std::string_view list, std::string_view slots) {
    while (!list.empty()) {
      auto own = trimmed(take_host(list));
      if (own.starts_with('^')) {
        add_file(std::string(own.substr(1)), fmt::format("{}: {}", where, own));
        continue;
      }
      const auto name = take(own, ":");
      if (name == "genders") {
        const auto attribute = take(own, ":");
        const auto found = hosts_with(where, attribute);
        for (std::string_view left = found; !left.empty();) {
          add(take_host(left), own.empty() ? slots : own);
        }
      } else {
        add(name, own.empty() ? slots : own);
      }
    }
  }

  /// `name`: in messages. "#include FILE" is pdsh's: beside this one where FILE is a relative path.
  void add_file(const std::string& path, const std::string& name) {
    constexpr int k_most_files = 16;
    std::ifstream file(path);
    if (!file || std::filesystem::is_directory(path)) {
      throw UsageError(fmt::format("{}: cannot be read: {}", printable(name),
                                   errno_text(errno != 0 ? errno : EISDIR)));
    }
    if (++files > k_most_files) {
      throw UsageError(fmt::format("{}: includes itself", printable(name)));
    }
    add_lines(std::string(std::istreambuf_iterator<char>(file), {}), name,
              std::filesystem::path(path).parent_path());
    --files;
  }

  void add_lines(std::string_view text, std::string_view file,
                 const std::filesystem::path& folder) {
    const auto outer = where;
    for (int number = 1; !text.empty(); ++number) {
      auto line = take(text, "\n");
      where = fmt::format("{}:{}", printable(file), number);
      constexpr std::string_view k_include = "#include ";
      if (const auto included = trimmed(line.substr(std::min(k_include.size(), line.size())));
          line.starts_with(k_include) && included.find_first_of(k_blanks) == included.npos) {
        add_file(folder / included, fmt::format("{}: {}", where, trimmed(line)));
        continue;
      }
      line = trimmed(take(line, "#"));
      const auto list = take(line, k_blanks);
      std::string_view slots;
      for (line = trimmed(line); !line.empty(); line = trimmed(line)) {
        auto value = take(line, k_blanks);
        const auto word = value;
        const auto key = take(value, "=");
        if (key == "slots" && slots.empty() && !value.empty()) {
          slots = value;
        } else if ((key != "max_slots" && key != "max-slots") || value.empty()) {
          refuse("bad word '{}'; write one host per line: HOST, HOST:N or HOST slots=N",
                 printable(word));
        }
      }
      add_list(list, slots);
    }
    where = outer;
  }

  /// The hosts of a file, which must name some.
  std::vector<HostSlots> take_some(std::string_view file) {
    if (hosts.empty()) {
      throw UsageError(fmt::format(
          "{}: no hosts in it; write one per line: HOST, HOST:N or HOST slots=N", printable(file)));
    }
    return std::move(hosts);
  }

  void add(std::string_view name, std::string_view slots) {
    const auto count = slots.empty() ? 0 : number(slots, k_most_slots).value_or(-1);
    if (count < 0 || (count == 0 && !slots.empty())) {
      refuse("bad slots '{}': write a number from 1 to {}", printable(slots), k_most_slots);
    }
    expand(name, name, count);
  }

  /// Adds each host of "gpu[01-03,7]".
  void expand(std::string_view name, std::string_view whole, int slots) {
    const auto open = name.find('[');
    if (open == std::string_view::npos) {
      add_one(name, whole, slots);
      return;
    }
    const auto close = name.find(']', open);
    auto ranges = name.substr(open + 1, std::min(close, name.size()) - open - 1);
    const auto refuse_range = [&] {
      refuse("'{}': bad range: write h[1-3] or h[1,4-6]", printable(whole));
    };
    if (close == std::string_view::npos || ranges.empty()) {
      refuse_range();
    }
    while (!ranges.empty()) {
      auto range = take(ranges, ",");
      const auto first_text = take(range, "-");
      const auto last_text = range.empty() ? first_text : range;
      constexpr int k_most = 1'000'000;
      const auto first = number(first_text, k_most);
      const auto last = number(last_text, k_most);
      if (!first || !last || *last < *first) {
        refuse_range();
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
      refuse("invalid host '{}': use letters, digits, - _ . @; set port and jump host in "
             "~/.ssh/config",
             printable(whole));
    }
    if (std::any_of(hosts.begin(), hosts.end(),
                    [&](const HostSlots& host) { return host.name == name; })) {
      refuse("'{}' is listed twice: give it once, with its slots", printable(name));
    }
    if (hosts.size() == k_most_hosts) {
      refuse("'{}': too many hosts: give at most {}", printable(whole), k_most_hosts);
    }
    hosts.push_back({.name = std::string(name), .slots = slots});
  }

  /// DeepSpeed's "h1:0,1@h2": hosts, with GPUs where some are named.
  void add_chosen(std::string_view text) {
    while (!text.empty()) {
      auto gpus = trimmed(take(text, "@"));
      const auto name = take(gpus, ":");
      const auto before = static_cast<std::ptrdiff_t>(hosts.size());
      expand(name, name, 0);
      for (auto host = hosts.begin() + before; host != hosts.end(); ++host) {
        for (auto left = gpus; !left.empty();) {
          const auto gpu = take(left, ",");
          const auto index = number(gpu, k_most_slots);
          if (!index) {
            refuse("'{}:{}': bad GPU '{}': write h1:0,1@h2", printable(name), printable(gpus),
                   printable(gpu));
          }
          host->gpus.push_back(std::to_string(*index));
        }
      }
    }
  }
};

std::vector<HostSlots>::iterator find_host(std::vector<HostSlots>& hosts, std::string_view name) {
  return std::find_if(hosts.begin(), hosts.end(), [&](const HostSlots& host) {
    return host.name == name || without_user(host.name) == name;
  });
}

/// The hosts that the flag names; each must be among `hosts`.
std::vector<HostSlots> named_among(std::vector<HostSlots>& hosts, std::string_view flag,
                                   std::string_view text) {
  Reader reader{std::string(flag)};
  reader.add_chosen(text);
  for (const auto& each : reader.hosts) {
    if (!hosts.empty() && find_host(hosts, each.name) == hosts.end()) {
      reader.refuse("'{}' is not among the hosts that --hosts or --hostfile name", each.name);
    }
  }
  return std::move(reader.hosts);
}

void require_some(const std::vector<HostSlots>& hosts, std::string_view flag) {
  if (hosts.empty()) {
    throw UsageError(fmt::format("{}: no hosts are left; exclude fewer", flag));
  }
}

} // namespace

std::vector<HostSlots> parse_hosts(std::string_view text) {
  Reader reader{"--hosts"};
  reader.add_list(text, "");
  return std::move(reader.hosts);
}

std::vector<HostSlots> parse_hostfile(std::string_view text, std::string_view file) {
  Reader reader{""};
  reader.add_lines(text, file, "");
  return reader.take_some(file);
}

std::vector<HostSlots> read_hostfile(std::string_view from, const std::string& path) {
  Reader reader{""};
  const auto name = fmt::format("{}={}", from, path);
  reader.add_file(path, name);
  return reader.take_some(name);
}

std::vector<HostSlots> choose_hosts(std::vector<HostSlots> hosts, const HostChoice& choice) {
  if (!choice.include.empty() && !choice.exclude.empty()) {
    throw UsageError("--include and --exclude: give one of them");
  }
  if (!choice.include.empty()) {
    auto chosen = named_among(hosts, "--include", choice.include);
    if (hosts.empty()) {
      hosts = chosen;
    }
    std::erase_if(hosts, [&](HostSlots& host) {
      auto its = find_host(chosen, host.name);
      its = its == chosen.end() ? find_host(chosen, without_user(host.name)) : its;
      if (its == chosen.end()) {
        return true;
      }
      host.gpus = its->gpus;
      if (host.slots > 0 && !host.gpus.empty()) {
        host.slots = std::min(host.slots, static_cast<int>(host.gpus.size()));
      }
      return false;
    });
  }
  const bool had_some = !hosts.empty();
  for (const auto& each : named_among(hosts, "--exclude", choice.exclude)) {
    const auto host = find_host(hosts, each.name);
    if (host == hosts.end()) { // There are no such hosts.
      break;
    }
    const auto of_slots =
        std::count_if(each.gpus.begin(), each.gpus.end(), [&](const std::string& gpu) {
          return number(gpu, k_most_slots) < host->slots;
        });
    if (each.gpus.empty() || (host->slots > 0 && of_slots == host->slots)) {
      hosts.erase(host);
      continue;
    }
    host->without_gpus = each.gpus;
    host->slots -= static_cast<int>(of_slots);
  }
  if (had_some) {
    require_some(hosts, "--exclude");
  }
  Reader without{"--exclude-hosts"};
  without.add_list(choice.without, "");
  std::erase_if(hosts, [&](const HostSlots& host) {
    return find_host(without.hosts, host.name) != without.hosts.end() ||
           find_host(without.hosts, without_user(host.name)) != without.hosts.end();
  });
  if (had_some) {
    require_some(hosts, "--exclude-hosts");
  }
  return hosts;
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
    throw UsageError(fmt::format("--workers: the job needs {} slots and its hosts have {}: list "
                                 "more hosts, or give them more slots (h1:4, slots=4)",
                                 ranks, placed.size()));
  }
  return placed;
}

} // namespace dtrain::ssh
