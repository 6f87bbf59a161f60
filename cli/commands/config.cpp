#include "cli/commands.h"
#include "cli/output/output_option.h"
#include "cli/output/records.h"
#include "cli/settings/settings.h"
#include "cli/target.h"
#include "submit/errors.h"
#include "submit/job_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

namespace dtrain {
namespace {

constexpr const char* k_first_profile = "default";

struct NoOptions {};

struct KeyOptions {
  std::string key;
  std::string value;
  std::string profile;
};

struct UseOptions {
  std::string profile;
};

struct OutputOptions {
  std::string output;
};

/// A setting in force, and what gave it.
struct Effective {
  std::string value;
  std::string from;
};

std::string default_of(std::string_view key) {
  return key == "backend" ? default_backend() : key == "namespace" ? k_default_namespace : "";
}

std::string variable_of(std::string_view key) {
  std::string name = fmt::format("DTRAIN_{}", key);
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return name;
}

std::string env_value(const std::string& variable) {
  const char* value = std::getenv(variable.c_str());
  return value == nullptr ? "" : value;
}

Effective effective(const Settings& settings, const std::string& profile, std::string_view key) {
  if (const auto variable = variable_of(key); !env_value(variable).empty()) {
    return {env_value(variable), "$" + variable};
  }
  if (const auto value = profile_value(settings, profile, key)) {
    return {*value,
            fmt::format("profile {}", profile.empty() ? settings.current_profile : profile)};
  }
  return {default_of(key), "default"};
}

Option key_argument(std::string& key) {
  return {.flags = "KEY",
          .target = &key,
          .help = "The setting",
          .complete = Complete::choices,
          .choices = profile_keys(),
          .required = true,
          .positional = true};
}

Option profile_argument(std::string& profile) {
  return {.flags = "PROFILE",
          .target = &profile,
          .help = "The profile",
          .complete = Complete::profile,
          .required = true,
          .positional = true};
}

CommandTable view_table(OutputOptions& options) {
  return {.name = "config view",
          .summary = "Show the settings in effect and where they come from",
          .description =
              "Shows each setting with its value and where it comes from. A flag overrides the "
              "environment, which overrides the profile, which overrides the default.",
          .examples = {"dtrain config view"},
          .options = {output_option(options.output, {"json", "yaml"})}};
}

int run_view(Context& context, const OutputOptions& options) {
  const Settings settings = read_settings(context.config_file);
  std::string profile = env_value("DTRAIN_PROFILE");
  std::vector<Record> rows;
  const auto add = [&](const std::string& key, const Effective& setting) {
    rows.push_back({{"key", key}, {"value", setting.value}, {"from", setting.from}});
  };
  if (!profile.empty()) {
    add("profile", {profile, "$DTRAIN_PROFILE"});
  } else if (!settings.current_profile.empty()) {
    add("profile", {settings.current_profile, context.config_file.string()});
  }
  for (const auto& key : profile_keys()) {
    add(key, effective(settings, profile, key));
  }
  print_records(context.out, {"key", "value", "from"}, rows, options.output);
  return 0;
}

CommandTable config_list_table(OutputOptions& options) {
  return {.name = "config list",
          .summary = "List the profiles",
          .description = "Lists the profiles; the current one has a star.",
          .examples = {"dtrain config list"},
          .options = {output_option(options.output, {"json", "yaml"})}};
}

int run_config_list(Context& context, const OutputOptions& options) {
  const Settings settings = read_settings(context.config_file);
  if (settings.profiles.empty() && options.output.empty()) {
    context.note(
        fmt::format("No profiles. Make one with: dtrain config set --profile=NAME backend {}",
                    default_backend()));
    return 0;
  }
  std::vector<std::string> keys = {"name", "current"};
  keys.insert(keys.end(), profile_keys().begin(), profile_keys().end());
  std::vector<Record> rows;
  for (const auto& [name, profile] : settings.profiles) {
    Record& row = rows.emplace_back();
    row = {{"name", name}, {"current", name == settings.current_profile ? "*" : ""}};
    for (const auto& key : profile_keys()) {
      const auto value = profile.values.find(key);
      row.emplace_back(key, value == profile.values.end() ? "" : value->second);
    }
  }
  print_records(context.out, keys, rows, options.output);
  return 0;
}

CommandTable config_get_table(KeyOptions& options) {
  return {.name = "config get",
          .summary = "Print one setting's value",
          .description = "Prints the value of one setting.",
          .examples = {"dtrain config get namespace"},
          .options = {key_argument(options.key), profile_option(options.profile)}};
}

int run_config_get(Context& context, const KeyOptions& options) {
  const Settings settings = read_settings(context.config_file);
  context.out.write(effective(settings, options.profile, options.key).value + "\n");
  return 0;
}

CommandTable set_table(KeyOptions& options) {
  return {
      .name = "config set",
      .summary = "Set a profile's setting",
      .description =
          "Sets a key of the profile that --profile names, or of the current one, and creates the "
          "profile if it does not exist. 'dtrain config use' makes a profile the current one. The "
          "keys image and hosts (separated by commas) are for backends that run jobs on other "
          "machines. The file is rewritten, so comments in it are lost.",
      .examples = {"dtrain config set namespace team-a",
                   fmt::format("dtrain config set --profile=laptop backend {}", default_backend()),
                   "dtrain config set --profile=cluster image registry.example.org/train:1"},
      .options = {key_argument(options.key),
                  {.flags = "VALUE",
                   .target = &options.value,
                   .help = "Its new value; an empty one removes the key",
                   .complete = Complete::setting_value,
                   .required = true,
                   .positional = true},
                  profile_option(options.profile)}};
}

int run_set(Context& context, const KeyOptions& options) {
  if (options.key == "backend" && !options.value.empty()) {
    context.make_backend(options.value, {}); // Throws if there is none of that name.
  }
  if (options.key == "namespace" && !options.value.empty()) {
    require_dns_label("namespace", options.value);
  }
  Settings settings = read_settings(context.config_file);
  std::string name = options.profile.empty() ? settings.current_profile : options.profile;
  if (name.empty()) {
    name = k_first_profile;
  }
  Profile& profile = settings.profiles[name];
  if (options.value.empty()) {
    profile.values.erase(options.key);
  } else {
    profile.values[options.key] = options.value;
  }
  if (settings.current_profile.empty() && options.profile.empty()) {
    settings.current_profile = name;
  }
  write_settings(context.config_file, settings);
  context.out.write(fmt::format("profile/{} configured\n", printable(name)));
  if (settings.current_profile.empty()) {
    context.note(fmt::format("Use it with --profile={0}, or always: dtrain config use {0}",
                             printable(name)));
  }
  return 0;
}

CommandTable config_delete_table(UseOptions& options) {
  return {.name = "config delete",
          .summary = "Delete a profile",
          .description = "Deletes a profile and the names of data that only it has. If it was the "
                         "current one, choose another with 'dtrain config use'.",
          .examples = {"dtrain config delete laptop"},
          .options = {profile_argument(options.profile)}};
}

int run_config_delete(Context& context, const UseOptions& options) {
  Settings settings = read_settings(context.config_file);
  static_cast<void>(settings.profile(options.profile)); // Throws if there is none.
  settings.profiles.erase(options.profile);
  if (settings.current_profile == options.profile) {
    settings.current_profile.clear();
  }
  write_settings(context.config_file, settings);
  context.out.write(fmt::format("profile/{} deleted\n", printable(options.profile)));
  return 0;
}

CommandTable use_table(UseOptions& options) {
  return {.name = "config use",
          .summary = "Make a profile the current one",
          .description = "Makes a profile the one that commands use by default.",
          .examples = {"dtrain config use cluster"},
          .options = {profile_argument(options.profile)}};
}

int run_use(Context& context, const UseOptions& options) {
  Settings settings = read_settings(context.config_file);
  static_cast<void>(settings.profile(options.profile)); // Throws if there is none.
  settings.current_profile = options.profile;
  write_settings(context.config_file, settings);
  context.out.write(fmt::format("profile/{} is now the current one\n", printable(options.profile)));
  return 0;
}

CommandTable path_table(NoOptions&) {
  return {.name = "config path",
          .summary = "Print where the settings are kept",
          .description = "Prints the path of the settings file, which need not exist.",
          .examples = {"$EDITOR \"$(dtrain config path)\""},
          .options = {}};
}

int run_path(Context& context, const NoOptions&) {
  context.out.write(context.config_file.string() + "\n");
  return 0;
}

} // namespace

Invocation config_view_command() { return bind(view_table, run_view); }
Invocation config_list_command() { return bind(config_list_table, run_config_list); }
Invocation config_get_command() { return bind(config_get_table, run_config_get); }
Invocation config_set_command() { return bind(set_table, run_set); }
Invocation config_use_command() { return bind(use_table, run_use); }
Invocation config_delete_command() { return bind(config_delete_table, run_config_delete); }
Invocation config_path_command() { return bind(path_table, run_path); }

} // namespace dtrain
