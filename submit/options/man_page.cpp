#include "submit/options/man_page.h"

#include "submit/fields/job_fields.h"
#include "submit/options/utf8.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <set>

namespace dtrain {
namespace {

std::string upper(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return out;
}

/// Quotes `text` as the argument of a macro, so that no word in it is read as a macro.
std::string argument(std::string_view text) {
  std::string out = "\"";
  for (const char c : man_text(text)) {
    out += c == '"' ? std::string("\\(dq") : std::string(1, c);
  }
  return out + "\"";
}

/// A word of letters and digits as a macro's argument; mdoc's own names need the zero-width \&.
std::string word(std::string_view text) { return "\\&" + man_text(text); }

std::string header(const ManContext& context, std::string_view page, std::string_view section) {
  return fmt::format(".\\\" Made from the option tables; edits here are lost.\n"
                     ".Dd {}\n.Dt {} {}\n.Os dtrain {}\n",
                     context.date, upper(page), section, context.version);
}

/// Running text with each sentence on a line of its own, as mdoc wants it.
std::string sentences(std::string_view text) {
  std::string out;
  for (std::size_t from = 0; from < text.size();) {
    std::size_t end = text.find(". ", from);
    while (end != std::string_view::npos && end + 2 < text.size() &&
           std::isupper(static_cast<unsigned char>(text[end + 2])) == 0) {
      end = text.find(". ", end + 1);
    }
    end = end == std::string_view::npos ? text.size() : end + 1;
    out += man_text(text.substr(from, end - from)) + "\n";
    from = end + 1;
  }
  return out;
}

/// Sentences in paragraphs; a line that begins with a space is set as it stands.
std::string paragraphs(std::string_view text) {
  std::string out;
  bool literal = false;
  bool gap = false;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const bool is_literal = line.starts_with(' ');
    if (is_literal != literal) {
      out += is_literal ? ".Bd -literal\n" : ".Ed\n";
      gap = false;
    }
    literal = is_literal;
    if (line.empty()) {
      gap = !out.empty();
      continue;
    }
    out += gap && !literal ? ".Pp\n" : "";
    gap = false;
    out += literal ? man_text(line) + "\n" : sentences(line);
  }
  return out + (literal ? ".Ed\n" : "");
}

std::string option_item(const Option& option) {
  if (option.positional) {
    return fmt::format(".It Ar {}\n", word(option.flags));
  }
  std::string item = ".It";
  const std::vector<std::string> flags = option.flag_list();
  for (std::size_t i = 0; i < flags.size(); ++i) {
    item += fmt::format("{} Fl {}", i == 0 ? "" : " ,", man_text(flags[i].substr(1)));
    if (!option.implied.empty()) {
      item += fmt::format(" Ns Op = Ns Ar {}", word(option.metavar));
    } else if (!option.metavar.empty()) {
      item += flags[i].starts_with("--") ? fmt::format(" Ns = Ns Ar {}", word(option.metavar))
                                         : fmt::format(" Ar {}", word(option.metavar));
    }
  }
  return item + "\n";
}

std::string option_text(const Option& option) {
  std::string text = man_text(option.help) + ".\n";
  if (!option.choices.empty()) {
    text += man_text(fmt::format("One of: {}.", fmt::join(option.choices, ", "))) + "\n";
  }
  if (!option.env.empty()) {
    text += fmt::format("The variable\n.Ev {}\ngives the default.\n", option.env);
  }
  return text;
}

std::string options_section(const CommandTable& command) {
  std::vector<std::string> groups;
  const auto group_of = [](const Option& option) {
    return option.positional ? std::string("Arguments") : option.group;
  };
  for (const Option& option : command.options) {
    if (option.is_shown() &&
        std::find(groups.begin(), groups.end(), group_of(option)) == groups.end()) {
      groups.push_back(group_of(option));
    }
  }
  std::string out = ".Sh OPTIONS\n";
  for (const std::string& group : groups) {
    out += groups.size() > 1 ? fmt::format(".Ss {}\n", man_text(group)) : "";
    out += ".Bl -tag -width Ds\n";
    for (const Option& option : command.options) {
      if (group_of(option) == group && option.is_shown()) {
        out += option_item(option) + option_text(option);
      }
    }
    out += ".El\n";
  }
  return groups.empty() ? std::string() : out;
}

std::string synopsis(const ManContext& context, const CommandTable& command) {
  std::string out = fmt::format(".Sh SYNOPSIS\n.Nm {}", context.program);
  out += command.name.empty() ? "\n" : fmt::format(" {}\n", command.name);
  for (const Option& option : command.options) {
    if (option.positional) {
      const bool many = std::holds_alternative<std::vector<std::string>*>(option.target);
      out += fmt::format("{} {}{}\n", option.required ? ".Ar" : ".Op Ar", word(option.flags),
                         many ? " ..." : "");
    }
  }
  out += ".Op Ar flags\n";
  return out + (command.takes_command ? ".Op Fl \\&- Ar command ...\n" : "");
}

std::string examples_section(const CommandTable& command) {
  if (command.examples.empty()) {
    return {};
  }
  std::string out = ".Sh EXAMPLES\n.Bd -literal\n";
  for (const std::string& line : command.examples) {
    out += line.empty() ? "\n" : man_text(line) + "\n";
  }
  return out + ".Ed\n";
}

std::string see_also_section(const ManContext& context, std::string_view page) {
  std::vector<std::pair<std::string, std::string>> pages; // section, then name: mdoc's order
  for (const std::string& entry : context.see_also) {
    const std::size_t space = entry.rfind(' ');
    if (entry.substr(0, space) != page) {
      pages.emplace_back(entry.substr(space + 1), entry.substr(0, space));
    }
  }
  std::sort(pages.begin(), pages.end());
  std::string out = ".Sh SEE ALSO\n";
  for (std::size_t i = 0; i < pages.size(); ++i) {
    out += fmt::format(".Xr {} {}{}\n", pages[i].second, pages[i].first,
                       i + 1 < pages.size() ? " ," : "");
  }
  return pages.empty() ? std::string() : out;
}

} // namespace

std::string man_text(std::string_view text) {
  std::string out;
  if (text.starts_with('.') || text.starts_with('\'')) {
    out = "\\&";
  }
  while (!text.empty()) {
    const Utf8Char next = decode_utf8(text);
    const std::size_t length = std::max<std::size_t>(next.length, 1);
    if (next.code == '\\') {
      out += "\\e";
    } else if (next.code == '-') {
      out += "\\-";
    } else if (next.code == '\'') {
      out += "\\(aq";
    } else if (next.code == '`') {
      out += "\\(ga";
    } else if (next.code == '^') {
      out += "\\(ha";
    } else if (next.code == '~') {
      out += "\\(ti";
    } else if (next.code >= 0x80) {
      out += fmt::format("\\[u{:04X}]", static_cast<std::uint32_t>(next.code));
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(length);
  }
  return out;
}

std::string man_page_name(std::string_view program, const CommandTable& command) {
  std::string name(program);
  if (!command.name.empty()) {
    name += "-" + command.name;
  }
  std::replace(name.begin(), name.end(), ' ', '-');
  return name;
}

std::string man_page(const ManContext& context, const CommandTable& command) {
  const std::string page = man_page_name(context.program, command);
  const std::string& text =
      command.description.empty() ? command.summary + "." : command.description;
  return header(context, page, "1") +
         fmt::format(".Sh NAME\n.Nm {}\n.Nd {}\n", page, man_text(command.summary)) +
         synopsis(context, command) + ".Sh DESCRIPTION\n" + paragraphs(text) +
         options_section(command) + (command.name == "submit" ? man_job_file() : "") +
         examples_section(command) + see_also_section(context, page);
}

std::string man_job_file() {
  std::string out = ".Sh JOB FILES\nA job file is YAML with these keys; each means the same as its "
                    "flag.\n.Bl -tag -width Ds\n";
  for (const JobField& field : job_fields()) {
    const bool is_list = std::holds_alternative<Member<std::vector<std::string>>>(field.member);
    out += fmt::format(".It Ic {} : {}\n{}.\n", word(field.key),
                       !field.metavar.empty() ? "Ar " + word(field.metavar)
                       : is_list              ? "Ar word ..."
                                              : "Ar bool",
                       man_text(field.help));
    if (field.key == "env") {
      out += "A list of\n.Ar KEY=VALUE ,\nor a map.\n";
    }
  }
  return out + ".El\n.Pp\n"
               "Bytes that are not UTF\\-8 are written as\n.Ic !!binary .\n";
}

std::string man_variables(const std::vector<EnvironmentVariable>& variables) {
  std::string out = ".Bl -tag -width Ds\n";
  for (const EnvironmentVariable& variable : variables) {
    out +=
        fmt::format(".It Ev {}\n{}", variable.name, sentences(fmt::format("{}.", variable.help)));
  }
  return out + ".El\n";
}

std::string man_variables_of_options(const std::vector<CommandTable>& commands) {
  std::map<std::string, std::set<std::string>> flags;
  for (const CommandTable& command : commands) {
    for (const Option& option : command.options) {
      if (!option.env.empty()) {
        flags[option.env].insert(option.long_flag());
      }
    }
  }
  std::string out = ".Bl -tag -width Ds\n";
  for (const auto& [variable, of] : flags) {
    out += fmt::format(".It Ev {}\nThe default of\n", variable);
    std::size_t left = of.size();
    for (const std::string& flag : of) {
      --left;
      out += fmt::format(".Fl {}{}\n", man_text(flag.substr(1)),
                         left == 0   ? " ."
                         : left == 1 ? "\nand"
                                     : " ,");
    }
  }
  return out + ".El\n";
}

std::string man_overview(const ManContext& context, std::string_view summary,
                         std::string_view description, const std::vector<CommandTable>& commands) {
  std::string out = header(context, context.program, "1") +
                    fmt::format(".Sh NAME\n.Nm {}\n.Nd {}\n.Sh SYNOPSIS\n.Nm\n.Ar command\n"
                                ".Op Ar flags\n.Sh DESCRIPTION\n",
                                context.program, man_text(summary)) +
                    paragraphs(description) + ".Pp\nThe commands:\n.Bl -tag -width Ds\n";
  for (const CommandTable& command : commands) {
    out += fmt::format(".It Ic {}\n{}.\nSee\n.Xr {} 1 .\n", argument(command.name),
                       man_text(command.summary), man_page_name(context.program, command));
  }
  return out + ".El\n" + see_also_section(context, context.program);
}

} // namespace dtrain
