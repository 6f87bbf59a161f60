// Options as data. One table gives the parser, --help, the man page and Tab completion, so that
// they cannot disagree. Used by dtrain and dtrain-trainer; knows nothing of jobs.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace dtrain {

/// What Tab offers as an option's or positional's value.
enum class Complete {
  nothing,
  choices,
  file,
  directory,
  job,
  instance,
  template_name,
  profile,
  engine, ///< Values that the option's engine knows.
  command_name,
  job_type,
  job_status,
  data_name,
  data_mount, ///< A data name followed by a colon.
  code_name,
  setting_value ///< Values of the setting named before it.
};

/// The target of a parsed value. A bool is a switch; a vector collects repeated uses.
using OptionTarget = std::variant<bool*, int*, std::int64_t*, double*, std::string*,
                                  std::optional<std::string>*, std::vector<std::string>*>;

struct Option {
  std::string flags; ///< "-n,--namespace", or a positional's "NAME".
  OptionTarget target;
  std::string metavar = {};      ///< "NAME"; empty for a switch.
  std::string help;              ///< One sentence without a full stop, including the default.
  std::string group = "Options"; ///< Heading in --help and the man page.
  Complete complete = Complete::nothing;
  std::vector<std::string> choices = {}; ///< Allowed values; anything else is a usage error.
  std::int64_t minimum = INT64_MIN;      ///< For numbers.
  std::int64_t maximum = INT64_MAX;
  std::string env = {}; ///< Environment variable that gives the default.
  bool required = false;
  bool positional = false;
  std::string implied = {}; ///< The value of the bare flag; others are given with = alone.
  bool duration = false;    ///< An int in milliseconds, given as "10s", "500ms" or seconds.
  std::vector<std::string> aliases = {}; ///< Accepted, but neither shown nor offered.
  bool hidden = false;                   ///< Accepted, but neither shown nor offered.
  std::string_view field = {};           ///< Key of the job's field that it sets; empty: none.
  std::string notice = {};               ///< Accepted, and said to do nothing, with this reason.
  /// Validates a value and returns what to store; throws UsageError. May be null.
  std::string (*read)(std::string_view flag, const std::string& value) = nullptr;
  /// Of a positional: returns true for a word that only names the kind of the next, such as "job"
  /// in "job mnist", which is read as "job/mnist". May be null.
  bool (*joins_next)(std::string_view word) = nullptr;

  bool is_shown() const { return notice.empty() && !hidden; }

  bool is_switch() const { return std::holds_alternative<bool*>(target); }
  /// The flag means something without a value.
  bool stands_alone() const { return is_switch() || !implied.empty(); }

  /// "--namespace" of "-n,--namespace"; a positional's "NAME".
  std::string long_flag() const;
  /// Splits `flags`: {"-n", "--namespace"}.
  std::vector<std::string> flag_list() const;
};

/// A command: its words, its options and its purpose.
struct CommandTable {
  std::string name;                       ///< "submit", "template show"
  std::string summary = {};               ///< One line, for the list of commands.
  std::string description = {};           ///< Paragraphs, for --help and the man page.
  std::vector<std::string> examples = {}; ///< "# comment" and command lines.
  std::vector<Option> options = {};
  /// The options that --help shows if there are many; the others are shown by group. Empty: all.
  std::vector<std::string> common = {};
  bool takes_command = false; ///< `-- CMD…` is kept, byte-exact, in `rest`.
  std::vector<std::string>* rest = nullptr;
  std::vector<std::string>* notices = nullptr; ///< Gets those of the flags given. May be null.
  /// Called with the words that are not flags of the table, before unknown flags are refused: a
  /// command that knows better what was meant throws UsageError. May be null.
  void (*check_words)(const std::vector<std::string>& words) = nullptr;

  /// The option that the flag, "--retry", is one of or an alias of; nullptr: none. A flag in camel
  /// case, "--workerImage", is the one in lower case, "--worker-image".
  const Option* find(const std::string& flag) const;
};

/// Which values are applied: the environment's, the flags', or one over the other.
enum class ParsePass { all, environment, flags };

/// A command line (without the program's and the command's names), taken apart once, to be applied
/// in passes. Switches take `--flag` and `--flag=false`, all else `--flag=V`, `--flag V`, `-f V` or
/// `-fV`.
class Arguments {
 public:
  /// Throws UsageError with a spelling suggestion for an unknown flag. `command` outlives it.
  Arguments(const CommandTable& command, const std::vector<std::string>& args);

  /// Then there is nothing to apply.
  bool ask_for_help() const { return help_; }

  /// Writes to the table's targets; options not given keep their values. The last use of a repeated
  /// flag counts, but vectors are appended to. Everything after the first `--` goes to `rest`.
  /// Throws UsageError for a wrong value, and then sets nothing.
  void apply(ParsePass pass) const;

 private:
  const CommandTable& command_;
  bool help_ = false;
  std::vector<std::vector<std::string>> values_; ///< Indexed as the options of the table.
  /// Words after `--`, for a command that takes them.
  std::optional<std::vector<std::string>> rest_;
};

/// Parses and applies `args`. Returns false, setting nothing, if --help was asked for.
bool parse_options(const CommandTable& command, const std::vector<std::string>& args,
                   ParsePass pass = ParsePass::all);

/// --help's text, for a terminal `width` columns wide. `group`: of --help=GROUP, the first word of
/// a group's name in small letters; "all"; or empty, for the common options where there are such.
/// Throws UsageError where there is no such group.
std::string help_text(std::string_view program, const CommandTable& command, int width,
                      const std::string& group = "");

} // namespace dtrain
