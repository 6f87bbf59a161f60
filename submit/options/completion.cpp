#include "submit/options/completion.h"

#include "submit/errors.h"
#include "submit/template/render.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <exception>

namespace dtrain {
namespace {

using Strings = std::vector<std::string>;

Strings split_words(const std::string& name) {
  Strings words;
  for (std::size_t begin = 0; begin <= name.size();) {
    const std::size_t end = std::min(name.find(' ', begin), name.size());
    words.push_back(name.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

/// Collects candidates that begin with what was typed.
class Offer {
 public:
  Offer(const Strings& words, const NameSource& names) : typed_(words.back()), names_(names) {}

  void add(const std::string& word, const std::string& description) {
    const bool known = std::any_of(result_.candidates.begin(), result_.candidates.end(),
                                   [&](const Candidate& c) { return c.word == word; });
    if (!known && word.starts_with(typed_)) {
      result_.candidates.push_back({word, description});
    }
  }

  /// Values of an option, each after `prefix` ("--output=").
  void add_values(const Option& option, const std::string& prefix, const Strings& args) {
    for (const std::string& choice : option.choices) {
      add(prefix + choice, "");
    }
    switch (option.complete) {
    case Complete::nothing:
    case Complete::choices:
      break;
    case Complete::file:
      result_.files = true;
      break;
    case Complete::directory:
      result_.directories = true;
      break;
    default:
      add_names(option, prefix, args);
      break;
    }
    if (option.is_switch()) {
      add(prefix + "true", "");
      add(prefix + "false", "");
    }
  }

  Completions result() && {
    const auto& all = result_.candidates;
    result_.no_space = !all.empty() && std::all_of(all.begin(), all.end(), [](const Candidate& c) {
      return c.word.ends_with('=') || c.word.ends_with(':');
    });
    return std::move(result_);
  }

  void offer_files() { result_.files = true; }

 private:
  void add_names(const Option& option, const std::string& prefix, const Strings& args) {
    try {
      for (const Candidate& name : names_ ? names_(option, args) : std::vector<Candidate>()) {
        // Unlike flags, names come once each: looking for doubles would cost their square.
        if (std::string word = prefix + name.word; word.starts_with(typed_)) {
          result_.candidates.push_back({std::move(word), name.description});
        }
      }
    } catch (const std::exception&) {
      // Tab is no place for an error.
    }
  }

  std::string typed_;
  const NameSource& names_;
  Completions result_;
};

/// The command whose words `words` begins with, the longest such.
const CommandTable* find_command(const std::vector<CommandTable>& commands, const Strings& words,
                                 std::size_t& length) {
  const CommandTable* found = nullptr;
  length = 0;
  for (const CommandTable& command : commands) {
    const Strings name = split_words(command.name);
    if (name.size() > length && name.size() < words.size() &&
        std::equal(name.begin(), name.end(), words.begin())) {
      found = &command;
      length = name.size();
    }
  }
  return found;
}

/// The next word of every command that begins with the words before the last.
void offer_commands(const std::vector<CommandTable>& commands, const Strings& words,
                    const std::vector<Candidate>& groups, Offer& offer) {
  const std::size_t depth = words.size() - 1;
  for (const CommandTable& command : commands) {
    const Strings name = split_words(command.name);
    if (name.size() > depth && std::equal(words.begin(), words.end() - 1, name.begin())) {
      const auto group = std::find_if(groups.begin(), groups.end(),
                                      [&](const Candidate& each) { return each.word == name[0]; });
      const bool whole = name.size() == depth + 1;
      offer.add(name[depth], whole                   ? command.summary
                             : group == groups.end() ? ""
                                                     : group->description);
    }
  }
  if (depth == 0) {
    offer.add("--help", "Print help");
    offer.add("--version", "Print the version");
  }
}

/// Options and positionals used by the words before the typed one.
struct Used {
  const Option* awaiting = nullptr; ///< The flag whose value comes next.
  std::vector<const Option*> flags;
  Strings positionals;
  bool after_separator = false;
};

const Option* find_flag(const CommandTable& command, const std::string& flag) {
  for (const Option& option : command.options) {
    const Strings flags = option.flag_list();
    if (!option.positional && std::find(flags.begin(), flags.end(), flag) != flags.end()) {
      return &option;
    }
  }
  return nullptr;
}

Used read_args(const CommandTable& command, const Strings& args) {
  Used used;
  for (const std::string& arg : args) {
    if (used.awaiting != nullptr) {
      used.awaiting = nullptr;
    } else if (arg == "--") {
      used.after_separator = true;
      return used;
    } else if (arg.starts_with('-') && arg != "-") {
      const Option* option = find_flag(command, arg.substr(0, arg.find('=')));
      if (option != nullptr) {
        used.flags.push_back(option);
        const bool has_value = arg.find('=') != std::string::npos;
        used.awaiting = option->stands_alone() || has_value ? nullptr : option;
      }
    } else {
      used.positionals.push_back(arg);
    }
  }
  return used;
}

void offer_flags(const CommandTable& command, const Used& used, Offer& offer) {
  for (const Option& option : command.options) {
    const bool many = std::holds_alternative<Strings*>(option.target);
    const bool again = std::find(used.flags.begin(), used.flags.end(), &option) != used.flags.end();
    if (!option.positional && option.is_shown() && (many || !again)) {
      offer.add(option.long_flag() + (option.stands_alone() ? "" : "="), option.help);
    }
  }
  offer.add("--help", "Print help");
}

void offer_positional(const CommandTable& command, const Used& used, const Strings& args,
                      Offer& offer) {
  std::size_t taken = used.positionals.size();
  for (const Option& option : command.options) {
    if (!option.positional) {
      continue;
    }
    if (taken == 0 || std::holds_alternative<Strings*>(option.target)) {
      offer.add_values(option, "", args);
      return;
    }
    --taken;
  }
  if (command.takes_command) {
    offer.add("--", "The command to run comes next");
  }
}

} // namespace

Completions complete(const std::vector<CommandTable>& commands, const Strings& words,
                     const NameSource& names, const std::vector<Candidate>& groups) {
  if (words.empty()) {
    return {};
  }
  Offer offer(words, names);
  std::size_t length = 0;
  const CommandTable* command = find_command(commands, words, length);
  if (command == nullptr) {
    offer_commands(commands, words, groups, offer);
    return std::move(offer).result();
  }
  const Strings args(words.begin() + static_cast<std::ptrdiff_t>(length), words.end() - 1);
  const std::string& typed = words.back();
  const Used used = read_args(*command, args);
  const std::size_t equals = typed.find('=');
  if (used.after_separator) {
    if (command->takes_command) {
      offer.offer_files();
    } else {
      offer_positional(*command, used, args, offer);
    }
  } else if (used.awaiting != nullptr) {
    offer.add_values(*used.awaiting, "", args);
  } else if (typed.starts_with("--") && equals != std::string::npos) {
    const Option* option = find_flag(*command, typed.substr(0, equals));
    if (option != nullptr) {
      offer.add_values(*option, typed.substr(0, equals + 1), args);
    }
  } else if (typed.starts_with('-')) {
    offer_flags(*command, used, offer);
  } else {
    // Sub-commands, where the command's words also begin longer ones.
    if (args.empty()) {
      offer_commands(commands, words, groups, offer);
    }
    offer_positional(*command, used, args, offer);
  }
  return std::move(offer).result();
}

std::string completion_text(const Completions& completions) {
  Strings directives;
  if (completions.files) {
    directives.emplace_back("files");
  }
  if (completions.directories) {
    directives.emplace_back("directories");
  }
  if (completions.no_space) {
    directives.emplace_back("nospace");
  }
  std::string text = fmt::format("{}\n", fmt::join(directives, " "));
  for (const Candidate& candidate : completions.candidates) {
    const bool one_line = candidate.word.find_first_of("\n\t") == std::string::npos;
    if (one_line) {
      text += fmt::format("{}\t{}\n", candidate.word, printable(candidate.description));
    }
  }
  return text;
}

std::string unquote_typed(std::string_view word) {
  std::string out;
  char quote = '\0';
  for (std::size_t i = 0; i < word.size(); ++i) {
    const char c = word[i];
    if (c == '\\' && quote != '\'' && i + 1 < word.size()) {
      // Inside double quotes a backslash stands for itself before anything but these.
      const bool keeps =
          quote == '"' && std::string_view("$`\"\\\n").find(word[i + 1]) == std::string_view::npos;
      if (keeps) {
        out += c;
      }
      out += word[++i];
    } else if (c == quote) {
      quote = '\0';
    } else if (quote == '\0' && (c == '\'' || c == '"')) {
      quote = c;
    } else {
      out += c;
    }
  }
  return out;
}

/// Made from completions/ at build time; "dtrain.bash" and so on.
const std::vector<BuiltinTemplate>& builtin_completions();

const Strings& completion_shells() {
  static const Strings all = {"bash", "zsh", "fish"};
  return all;
}

std::string_view completion_script(std::string_view shell) {
  for (const BuiltinTemplate& script : builtin_completions()) {
    if (script.name == fmt::format("dtrain.{}", shell)) {
      return script.text;
    }
  }
  throw UsageError(fmt::format("no completion for the shell '{}'; available: {}", printable(shell),
                               fmt::join(completion_shells(), ", ")));
}

} // namespace dtrain
