#include "submit/errors.h"
#include "submit/options/option_table.h"
#include "submit/options/utf8.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <iterator>

namespace dtrain {
namespace {

constexpr std::size_t k_narrowest = 40;
constexpr std::size_t k_widest = 100;      ///< Longer lines are hard to read.
constexpr std::size_t k_longest_left = 28; ///< A longer flag has its help on the next line.
constexpr std::size_t k_indent = 2;

/// `text` broken at spaces into lines of at most `width` columns.
std::vector<std::string> wrap(std::string_view text, std::size_t width) {
  std::vector<std::string> lines(1);
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    std::string& line = lines.back();
    if (line.empty()) {
      line = word;
    } else if (utf8_columns(line) + 1 + utf8_columns(word) <= width) {
      line += ' ';
      line += word;
    } else {
      lines.emplace_back(word);
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

/// Paragraphs, each wrapped; a line that begins with a space stays as it is.
std::string wrap_paragraphs(std::string_view text, std::size_t width) {
  std::string out;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    out += line.starts_with(' ') ? std::string(line)
                                 : fmt::format("{}", fmt::join(wrap(line, width), "\n"));
    out += '\n';
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

/// "-n, --namespace=NAME"; flags without a short form line up with those that have one.
std::string left_column(const Option& option) {
  if (option.positional) {
    return option.flags;
  }
  const std::vector<std::string> flags = option.flag_list();
  const bool has_short = std::any_of(flags.begin(), flags.end(),
                                     [](const auto& flag) { return !flag.starts_with("--"); });
  return fmt::format("{}{}{}", has_short ? "" : "    ", fmt::join(flags, ", "),
                     option.metavar.empty()   ? ""
                     : option.implied.empty() ? "=" + option.metavar
                                              : "[=" + option.metavar + "]");
}

std::string right_column(const Option& option) {
  std::string help = option.help;
  const bool names_all =
      std::all_of(option.choices.begin(), option.choices.end(),
                  [&](const auto& choice) { return help.find(choice) != std::string::npos; });
  if (!names_all) {
    help += fmt::format(": {}", fmt::join(option.choices, ", "));
  }
  if (!option.env.empty()) {
    help += fmt::format(" [${}]", option.env);
  }
  return help;
}

constexpr const char* k_all_groups = "all";

/// "code" of "Code, data and secrets".
std::string group_word(const std::string& name) {
  std::string word = name.substr(0, name.find_first_of(" ,"));
  std::transform(word.begin(), word.end(), word.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return word;
}

using Row = std::pair<std::string, std::string>;

void append_rows(std::string& out, const std::vector<Row>& rows, std::size_t left,
                 std::size_t width) {
  const std::size_t hang = k_indent + left + k_indent;
  for (const auto& [flag, help] : rows) {
    const std::size_t columns = utf8_columns(flag);
    std::string line = std::string(k_indent, ' ') + flag;
    if (columns > left) {
      out += line + "\n";
      line = std::string(hang, ' ');
    } else {
      line += std::string(hang - k_indent - columns, ' ');
    }
    const auto lines = wrap(help, std::max(width, hang + k_narrowest / 2) - hang);
    out += fmt::format("{}{}\n", line, fmt::join(lines, "\n" + std::string(hang, ' ')));
  }
}

std::string usage_line(std::string_view program, const CommandTable& command) {
  std::string usage = fmt::format("Usage: {}", program);
  if (!command.name.empty()) {
    usage += " " + command.name;
  }
  for (const Option& option : command.options) {
    if (option.positional) {
      const bool many = std::holds_alternative<std::vector<std::string>*>(option.target);
      const std::string word = option.flags + (many ? "…" : "");
      usage += option.required ? " " + word : " [" + word + "]";
    }
  }
  usage += " [flags]";
  return usage + (command.takes_command ? " [-- COMMAND…]" : "");
}

} // namespace

std::string help_text(std::string_view program, const CommandTable& command, int width,
                      const std::string& group) {
  const std::size_t columns =
      std::clamp(static_cast<std::size_t>(std::max(width, 0)), k_narrowest, k_widest);
  std::string out = usage_line(program, command) + "\n";
  const std::string& text = command.description.empty() ? command.summary : command.description;
  if (!text.empty()) {
    out += "\n" + wrap_paragraphs(text, columns);
  }

  // Groups in the order in which the table first names them.
  std::vector<std::pair<std::string, std::vector<Row>>> groups;
  const auto group_of = [&](const std::string& name) -> std::vector<Row>& {
    const auto found = std::find_if(groups.begin(), groups.end(),
                                    [&](const auto& each) { return each.first == name; });
    return found != groups.end() ? found->second
                                 : groups.emplace_back(name, std::vector<Row>()).second;
  };
  const bool brief = group.empty() && !command.common.empty();
  std::vector<std::string> others; // Names of groups, as --help=GROUP takes them.
  for (const Option& option : command.options) {
    if (!option.is_shown()) {
      continue;
    }
    const std::string name = option.positional ? "Arguments" : option.group;
    const std::string word = group_word(name);
    if (!option.positional && std::find(others.begin(), others.end(), word) == others.end()) {
      others.push_back(word);
    }
    const bool common = std::find(command.common.begin(), command.common.end(),
                                  option.long_flag()) != command.common.end();
    if (brief ? option.positional || common
              : group.empty() || group == k_all_groups || group == word) {
      group_of(name).emplace_back(left_column(option), right_column(option));
    }
  }
  if (!group.empty() && groups.empty()) {
    throw UsageError(fmt::format("--help={}: must be one of {}, {}", printable(group),
                                 fmt::join(others, ", "), k_all_groups));
  }
  group_of("Options").emplace_back(
      "-h, --help", brief ? fmt::format("Print this help; more flags: --help=GROUP with one of {}; "
                                        "--help={} prints them all",
                                        fmt::join(others, ", "), k_all_groups)
                          : "Print this help");

  std::size_t left = 0;
  for (const auto& [name, rows] : groups) {
    for (const Row& row : rows) {
      const std::size_t size = utf8_columns(row.first);
      left = std::max(left, size <= k_longest_left ? size : 0);
    }
  }
  for (const auto& [name, rows] : groups) {
    out += fmt::format("\n{}:\n", name);
    append_rows(out, rows, left, columns);
  }
  if (!command.examples.empty()) {
    out += "\nExamples:\n";
    for (const std::string& line : command.examples) {
      out += fmt::format("{}{}\n", std::string(line.empty() ? 0 : k_indent, ' '), line);
    }
  }
  return out;
}

} // namespace dtrain
