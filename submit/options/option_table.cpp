#include "submit/options/option_table.h"

#include "submit/errors.h"
#include "submit/options/duration.h"
#include "submit/options/nearest.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <climits>
#include <cmath>
#include <cstdlib>
#include <map>
#include <type_traits>

namespace dtrain {
namespace {

using Strings = std::vector<std::string>;

/// The source of a value, as a message names it: "--workers=0", "DTRAIN_WORKERS=0".
struct Given {
  std::string where;
  std::string value;
};

std::string did_you_mean(std::string_view word, const Strings& known) {
  const auto hit = nearest(word, known);
  return hit ? fmt::format(": did you mean {}?", *hit) : std::string();
}

[[noreturn]] void refuse(const Given& given, std::string_view why) {
  throw UsageError(fmt::format("{}: {}", printable(given.where), why));
}

template <typename Number>
std::string range_text(const Option& option) {
  const auto limit = std::numeric_limits<Number>::max();
  const bool low = option.minimum != INT64_MIN;
  const bool high = option.maximum != INT64_MAX;
  if (low && !high && std::is_same_v<Number, int>) {
    return fmt::format("must be between {} and {}", option.minimum, limit);
  }
  if (low && high) {
    return fmt::format("must be between {} and {}", option.minimum, option.maximum);
  }
  if (!low && !high && !std::is_integral_v<Number>) {
    return "must be a finite number";
  }
  return low    ? fmt::format("must be {} or more", option.minimum)
         : high ? fmt::format("must be {} or less", option.maximum)
                : fmt::format("must be between {} and {}", std::numeric_limits<Number>::lowest(),
                              limit);
}

template <typename Number>
Number parse_number(const Option& option, const Given& given) {
  Number number{};
  const char* begin = given.value.data();
  const char* end = begin + given.value.size();
  const auto [stop, error] = std::from_chars(begin, end, number);
  if (error == std::errc::result_out_of_range && stop == end) {
    refuse(given, range_text<Number>(option));
  }
  if (error != std::errc() || stop != end || given.value.empty()) {
    refuse(given, std::is_integral_v<Number> ? "not a whole number" : "not a number");
  }
  bool inside = false;
  if constexpr (std::is_integral_v<Number>) {
    inside = number >= option.minimum && number <= option.maximum;
  } else {
    inside = std::isfinite(number) &&
             (option.minimum == INT64_MIN || number >= static_cast<Number>(option.minimum)) &&
             (option.maximum == INT64_MAX || number <= static_cast<Number>(option.maximum));
  }
  if (!inside) {
    refuse(given, range_text<Number>(option));
  }
  return number;
}

bool parse_bool(const Given& given) {
  static const Strings yes = {"true", "1", "yes", "on"};
  static const Strings no = {"false", "0", "no", "off"};
  const bool is_yes = std::find(yes.begin(), yes.end(), given.value) != yes.end();
  const bool is_no = std::find(no.begin(), no.end(), given.value) != no.end();
  if (!is_yes && !is_no) {
    refuse(given, "must be true or false");
  }
  return is_yes;
}

void check_choice(const Option& option, const Given& given) {
  const Strings& choices = option.choices;
  if (choices.empty() || std::find(choices.begin(), choices.end(), given.value) != choices.end()) {
    return;
  }
  refuse(given, fmt::format("must be one of {}{}", fmt::join(choices, ", "),
                            did_you_mean(given.value, choices)));
}

int parse_milliseconds(const Option& option, const Given& given) {
  const auto duration = parse_duration(given.value);
  if (!duration) {
    refuse(given, "must be a duration such as 500ms, 10s, 5m or 1h");
  }
  if (duration->count() < option.minimum ||
      duration->count() > std::min<std::int64_t>(option.maximum, INT_MAX)) {
    refuse(given, fmt::format("must be between {} and {}",
                              format_duration(std::chrono::milliseconds(option.minimum)),
                              format_duration(std::chrono::milliseconds(option.maximum))));
  }
  return static_cast<int>(duration->count());
}

/// A value checked and ready, applied only when all of them are good.
using Assignment = std::function<void()>;

Assignment prepare(const Option& option, const Given& given) {
  return std::visit(
      [&](auto* target) -> Assignment {
        using Value = std::remove_pointer_t<decltype(target)>;
        if constexpr (std::is_same_v<Value, int>) {
          const int value = option.duration ? parse_milliseconds(option, given)
                                            : parse_number<int>(option, given);
          return [target, value] { *target = value; };
        } else if constexpr (std::is_same_v<Value, bool>) {
          return [target, value = parse_bool(given)] { *target = value; };
        } else if constexpr (std::is_arithmetic_v<Value>) {
          return [target, value = parse_number<Value>(option, given)] { *target = value; };
        } else {
          check_choice(option, given);
          const std::string value =
              option.read == nullptr ? given.value : option.read(option.long_flag(), given.value);
          if constexpr (std::is_same_v<Value, Strings>) {
            return [target, value] { target->push_back(value); };
          } else {
            return [target, value] { *target = value; };
          }
        }
      },
      option.target);
}

/// CLI11 takes `--flag=` as `--flag` with its value to come. No argument can hold a NUL byte, so
/// one marks the empty value on the way in and goes on the way out.
constexpr char k_empty_mark = '\0';

std::string mark_empty_value(const std::string& arg) {
  const bool empty_value = arg.starts_with("--") && arg.ends_with('=');
  return empty_value ? arg + k_empty_mark : arg;
}

std::string unmark(std::string value) {
  if (value.ends_with(k_empty_mark)) {
    value.pop_back();
  }
  return value;
}

/// The words of the command line by option, still as text.
struct RawArguments {
  std::vector<Strings> values; ///< Indexed as the options of the table.
  Strings others;              ///< Positionals, and flags that nobody knows.
  bool help = false;
};

/// "--workerImage" as "--worker-image"; text without a capital after a small letter stays.
std::string in_lower_case(std::string_view flag) {
  const auto is_upper = [](char c) { return c >= 'A' && c <= 'Z'; };
  const auto is_lower = [](char c) { return c >= 'a' && c <= 'z'; };
  std::string out;
  for (std::size_t i = 0; i < flag.size(); ++i) {
    if (is_upper(flag[i]) && i > 0 && is_lower(flag[i - 1])) {
      out += '-';
    }
    out += is_upper(flag[i]) ? static_cast<char>(flag[i] - 'A' + 'a') : flag[i];
  }
  return out;
}

/// Normalises a flag: "--dry-run" to "--dry-run=client", and "--workerImage=x" to
/// "--worker-image=x" if the table has no flag of the given spelling.
std::string as_known(const CommandTable& command, const std::string& arg) {
  if (!arg.starts_with("--")) {
    return arg;
  }
  const std::size_t equals = std::min(arg.find('='), arg.size());
  const std::string flag = arg.substr(0, equals);
  const Option* option = command.find(flag);
  if (option == nullptr) {
    return arg;
  }
  const std::string known = in_lower_case(flag);
  const bool respelled = option->long_flag() == known && flag != known;
  const std::string implied =
      equals == arg.size() && !option->implied.empty() ? "=" + option->implied : arg.substr(equals);
  return (respelled ? known : flag) + implied;
}

/// True if the predicate holds for one of the option's flags and aliases. It runs for each word and
/// each of more than a hundred options.
template <typename Test>
bool any_name(const Option& option, const Test& is_so) {
  for (std::string_view rest = option.flags; !rest.empty();) {
    const auto comma = std::min(rest.find(','), rest.size());
    if (is_so(rest.substr(0, comma))) {
      return true;
    }
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  return std::any_of(option.aliases.begin(), option.aliases.end(), is_so);
}

/// True where a word may name the option: in "-abc", each letter may.
bool may_name(const Strings& words, const Option& option) {
  return any_name(option, [&](std::string_view flag) {
    return std::any_of(words.begin(), words.end(), [&](std::string_view word) {
      return flag.starts_with("--") ? word.substr(0, word.find('=')) == flag
                                    : word.starts_with('-') && word.find(flag[1]) != word.npos;
    });
  });
}

/// CLI11 compares each option that it is told of with all others, which took most of the time
/// before a job was submitted: it is told of those that the words may name.
RawArguments split_arguments(const CommandTable& command, const Strings& args) {
  Strings words;
  std::transform(args.begin(), args.end(), std::back_inserter(words),
                 [&](const std::string& arg) { return mark_empty_value(as_known(command, arg)); });
  CLI::App app;
  app.set_help_flag();
  app.allow_extras();
  const CLI::Option* help = app.add_flag("-h,--help");
  std::vector<const CLI::Option*> handles;
  for (const Option& option : command.options) {
    if (option.positional || !may_name(words, option)) {
      handles.push_back(
          nullptr); // A positional is taken from the rest, which CLI11 leaves in order.
      continue;
    }
    Strings names = option.flag_list();
    names.insert(names.end(), option.aliases.begin(), option.aliases.end());
    const auto flags = fmt::format("{}", fmt::join(names, ","));
    if (option.is_switch()) {
      handles.push_back(app.add_flag(flags)->multi_option_policy(CLI::MultiOptionPolicy::TakeLast));
    } else {
      handles.push_back(app.add_option(flags)
                            ->type_size(1)
                            ->expected(1)
                            ->allow_extra_args(false)
                            ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll));
    }
  }
  std::reverse(words.begin(), words.end()); // as CLI11 takes them
  try {
    app.parse(words);
  } catch (const CLI::ArgumentMismatch&) {
    throw UsageError(fmt::format("flag {} needs a value", printable(args.back())));
  } catch (const CLI::ParseError& error) {
    throw UsageError(printable(error.what()));
  }
  RawArguments raw;
  raw.help = help->count() > 0;
  for (const CLI::Option* handle : handles) {
    Strings& values = raw.values.emplace_back();
    if (handle != nullptr) {
      std::transform(handle->results().begin(), handle->results().end(), std::back_inserter(values),
                     unmark);
    }
  }
  for (const std::string& other : app.remaining()) {
    raw.others.push_back(unmark(other));
  }
  return raw;
}

bool is_flag(const std::string& arg) { return arg.starts_with('-') && arg != "-"; }

/// What other programs call one of our flags that the command has; else empty.
std::string other_word_for(const CommandTable& command, const std::string& flag) {
  static const std::map<std::string_view, const char*> k_words = {
      {"-N", "--workers"},
      {"--chdir", "--working-dir"},
      {"--cpus", "--cpu"},
      {"--cpus-per-task", "--cpu"},
      {"--gpu", "--gpus"},
      {"--gpus-per-node", "--gpus"},
      {"--gpus-per-task", "--gpus"},
      {"--gres", "--gpus"},
      {"--job-name", "--name"},
      {"--mem", "--memory"},
      {"--nnodes", "--workers"},
      {"--nodes", "--workers"},
      {"--np", "--workers"},
      {"--nproc", "--workers"},
      {"--nproc_per_node", "--nproc-per-node"},
      {"--ntasks", "--workers"},
      {"--ntasks-per-node", "--workers"},
      {"--num-gpus", "--gpus"},
      {"--num-nodes", "--workers"},
      {"--num-workers", "--workers"},
      {"--num_gpus", "--gpus"},
      {"--num_nodes", "--workers"},
      {"--num_workers", "--workers"},
      {"--partition", "--queue"},
      {"--replicas", "--workers"},
      {"--requeue", "--max-restarts"},
      {"--time", "--running-timeout"},
      {"--timeout", "--running-timeout"},
      {"--workdir", "--working-dir"}};
  const auto found = k_words.find(flag);
  return found == k_words.end() || command.find(found->second) == nullptr ? "" : found->second;
}

void require_known_flags(const CommandTable& command, const Strings& others) {
  const auto unknown = std::find_if(others.begin(), others.end(), is_flag);
  if (unknown == others.end()) {
    return;
  }
  Strings known = {"--help"};
  for (const Option& option : command.options) {
    if (!option.positional) {
      known.push_back(option.long_flag());
    }
  }
  const std::string flag = unknown->substr(0, unknown->find('='));
  const std::string other = other_word_for(command, flag);
  const std::string hint =
      other.empty() ? did_you_mean(flag, known) : fmt::format(": did you mean {}?", other);
  if (hint.empty() && command.takes_command) {
    throw UsageError(
        fmt::format("unknown flag {}: see --help; the command's own flags go after --, "
                    "as in -- {}",
                    printable(flag), printable(*unknown)));
  }
  throw UsageError(
      fmt::format("unknown flag {}{}", printable(flag), hint.empty() ? ": see --help" : hint));
}

/// Hands the words that are no flags to the positionals, in order.
void assign_positionals(const CommandTable& command, RawArguments& raw) {
  auto word = raw.others.begin();
  for (std::size_t i = 0; i < command.options.size(); ++i) {
    const Option& option = command.options[i];
    if (!option.positional) {
      continue;
    }
    const bool many = std::holds_alternative<Strings*>(option.target);
    while (word != raw.others.end() && (many || raw.values[i].empty())) {
      std::string value = *word++;
      if (option.joins_next != nullptr && word != raw.others.end() && option.joins_next(value)) {
        value += "/" + *word++;
      }
      raw.values[i].push_back(std::move(value));
    }
  }
  if (word != raw.others.end()) {
    throw UsageError(fmt::format("unexpected argument '{}'{}", printable(*word),
                                 command.takes_command ? fmt::format(": the command goes after --, "
                                                                     "as in -- {}",
                                                                     printable(*word))
                                                       : std::string()));
  }
}

} // namespace

Strings Option::flag_list() const {
  Strings list;
  for (std::size_t begin = 0; begin <= flags.size();) {
    const std::size_t end = std::min(flags.find(',', begin), flags.size());
    list.push_back(flags.substr(begin, end - begin));
    begin = end + 1;
  }
  return list;
}

const Option* CommandTable::find(const std::string& flag) const {
  const auto search = [&](const std::string& wanted) -> const Option* {
    const auto found = std::find_if(options.begin(), options.end(), [&](const Option& option) {
      return any_name(option, [&](std::string_view one) { return one == wanted; });
    });
    return found == options.end() ? nullptr : &*found;
  };
  const Option* exact = search(flag);
  return exact != nullptr || !flag.starts_with("--") ? exact : search(in_lower_case(flag));
}

std::string Option::long_flag() const {
  const Strings list = flag_list();
  return *std::max_element(list.begin(), list.end(),
                           [](const auto& a, const auto& b) { return a.size() < b.size(); });
}

Arguments::Arguments(const CommandTable& command, const Strings& args) : command_(command) {
  const auto separator = std::find(args.begin(), args.end(), "--");
  RawArguments raw = split_arguments(command, Strings(args.begin(), separator));
  help_ = raw.help;
  if (help_) {
    return;
  }
  if (command.check_words != nullptr) {
    command.check_words(raw.others);
  }
  require_known_flags(command, raw.others);
  if (separator != args.end()) {
    const Strings rest(separator + 1, args.end());
    if (command.takes_command) {
      rest_ = rest;
    } else {
      raw.others.insert(raw.others.end(), rest.begin(), rest.end());
    }
  }
  assign_positionals(command, raw);
  values_ = std::move(raw.values);
}

void Arguments::apply(ParsePass pass) const {
  std::vector<Assignment> assignments;
  for (std::size_t i = 0; i < command_.options.size(); ++i) {
    const Option& option = command_.options[i];
    const Strings& values = values_[i];
    const char* from_env = option.env.empty() ? nullptr : std::getenv(option.env.c_str());
    const bool env_set = from_env != nullptr && *from_env != '\0';
    if (env_set && pass != ParsePass::flags && values.empty()) {
      assignments.push_back(
          prepare(option, {fmt::format("{}={}", option.env, from_env), from_env}));
    }
    if (values.empty() && !env_set && option.required) {
      std::string what = option.help;
      what[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(what[0])));
      if (!option.choices.empty()) {
        what = fmt::format("one of {}", fmt::join(option.choices, ", "));
      }
      throw UsageError(fmt::format("{} is missing: {}", option.long_flag(), what));
    }
    if (!values.empty() && !option.notice.empty() && command_.notices != nullptr &&
        pass != ParsePass::environment) {
      command_.notices->push_back(fmt::format("{}: {}", option.long_flag(), option.notice));
    }
    for (const std::string& value : values) {
      if (pass != ParsePass::environment) {
        const std::string where = option.positional
                                      ? fmt::format("{} '{}'", option.flags, value)
                                      : fmt::format("{}={}", option.long_flag(), value);
        assignments.push_back(prepare(option, {where, value}));
      }
    }
  }
  for (const Assignment& assign : assignments) {
    assign();
  }
  if (rest_ && command_.rest != nullptr && pass != ParsePass::environment) {
    *command_.rest = *rest_;
  }
}

bool parse_options(const CommandTable& command, const Strings& args, ParsePass pass) {
  const Arguments arguments(command, args);
  if (!arguments.ask_for_help()) {
    arguments.apply(pass);
  }
  return !arguments.ask_for_help();
}

} // namespace dtrain
