#include "cli/commands.h"
#include "cli/output/output_option.h"
#include "cli/output/records.h"
#include "cli/settings/locations.h"
#include "cli/target.h"
#include "submit/errors.h"
#include "submit/text/url.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <optional>
#include <set>

namespace dtrain {
namespace {

struct LocationOptions {
  std::string name;
  std::string path;
  std::string claim;
  std::string nfs;
  std::string bucket;
  std::string endpoint;
  std::string region;
  std::string credentials_file;
  std::string csi;
  std::string git;
  std::string user;
  std::string token_file;
  std::string output;
  std::string profile; ///< Empty: of all profiles.
  bool read_only = false;
  bool replace = false;
};

struct LocationListOptions {
  std::string output;
  bool all_namespaces = false;
  TargetOptions target; ///< Whose claims are listed beside named data.
};

/// Differences between the two kinds of locations in the commands' texts.
struct Kind {
  const char* word; ///< "data"
  Locations Settings::*all;
  const std::vector<std::string>& (*keys)();
};

constexpr Kind k_data_kind = {"data", &Settings::data, data_keys};
constexpr Kind k_code_kind = {"code", &Settings::code, code_keys};

Option new_name_option(std::string& name) {
  return {.flags = "NAME",
          .target = &name,
          .help = "A name for it",
          .required = true,
          .positional = true};
}

/// Help texts of fields.
template <const Kind& kind>
Option name_option(std::string& name) {
  Option option = new_name_option(name);
  option.help = fmt::format("A name from 'dtrain {} list'", kind.word);
  option.complete = kind.all == &Settings::data ? Complete::data_name : Complete::code_name;
  return option;
}

Option of_profile_option(std::string& profile) {
  return {.flags = "--profile",
          .target = &profile,
          .metavar = "NAME",
          .help = "For this profile only, where it overrides the same name of all profiles",
          .group = "Where",
          .complete = Complete::profile};
}

CommandTable data_add_table(LocationOptions& options) {
  return {
      .name = "data add",
      .summary = "Save where data is, under a name",
      .description = "Saves where data is under a name, for --data=NAME:/path of submit.",
      .examples = {"dtrain data add training-data --path=/mnt/training",
                   "dtrain data add shared --claim=training-pvc --read-only",
                   "dtrain data add images --bucket=s3://images/train --region=eu-west-1"},
      .options = {
          new_name_option(options.name),
          {.flags = "--path",
           .target = &options.path,
           .metavar = "DIR",
           .help = "A folder of the node",
           .complete = Complete::directory},
          {.flags = "--claim",
           .target = &options.claim,
           .metavar = "NAME",
           .help = "A persistent volume claim of the cluster's"},
          {.flags = "--nfs",
           .target = &options.nfs,
           .metavar = "SERVER:/PATH",
           .help = "A share of a file server (NFS, NAS)"},
          {.flags = "--bucket",
           .target = &options.bucket,
           .metavar = "URL",
           .help = "A bucket, s3://BUCKET/PREFIX or oss://BUCKET/PREFIX: of Amazon S3, "
                   "Alibaba Cloud OSS, or a store that speaks S3 (MinIO, Ceph)"},
          {.flags = "--endpoint",
           .target = &options.endpoint,
           .metavar = "URL",
           .help =
               "Address of the bucket's store (default: AWS_ENDPOINT_URL_S3, or the cloud's own)"},
          {.flags = "--region",
           .target = &options.region,
           .metavar = "NAME",
           .help = "The bucket's region (default: AWS_REGION, or us-east-1)"},
          {.flags = "--credentials-file",
           .target = &options.credentials_file,
           .metavar = "FILE",
           .help = "File with the bucket's keys, in the format of ~/.aws/credentials (default: "
                   "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY)",
           .complete = Complete::file},
          {.flags = "--csi",
           .target = &options.csi,
           .metavar = "DRIVER[?KEY=VALUE&…]",
           .help = "A volume that a CSI driver of the cluster makes for each instance, with the "
                   "driver's attributes, fsType and nodePublishSecretRef"},
          {.flags = "--read-only", .target = &options.read_only, .help = "Jobs mount it read-only"},
          {.flags = "--replace", .target = &options.replace, .help = "Overwrite an existing entry"},
          of_profile_option(options.profile)}};
}

CommandTable code_add_table(LocationOptions& options) {
  return {.name = "code add",
          .summary = "Save where code is, under a name",
          .description = "Saves where code is under a name, for --code=NAME of submit. Of a token "
                         "only the path of its file is saved.",
          .examples = {"dtrain code add bert --git=https://example.org/bert.git@main",
                       "dtrain code add mine --path=."},
          .options = {new_name_option(options.name),
                      {.flags = "--git",
                       .target = &options.git,
                       .metavar = "URL[@REF]",
                       .help = "A Git repository and its branch, tag or commit"},
                      {.flags = "--path",
                       .target = &options.path,
                       .metavar = "DIR",
                       .help = "A folder of this machine",
                       .complete = Complete::directory},
                      {.flags = "--user",
                       .target = &options.user,
                       .metavar = "NAME",
                       .help = "User of the repository"},
                      {.flags = "--token-file",
                       .target = &options.token_file,
                       .metavar = "FILE",
                       .help = "File whose first line is the user's token",
                       .complete = Complete::file},
                      {.flags = "--replace",
                       .target = &options.replace,
                       .help = "Overwrite an existing entry"}}};
}

/// The fields given for the location, by key.
Values said(const LocationOptions& options) {
  const auto absolute = [](const std::string& path) {
    return path.empty() ? path : std::filesystem::absolute(path).lexically_normal().string();
  };
  Values all = {{"path", absolute(options.path)},
                {"claim", options.claim},
                {"nfs", options.nfs},
                {"bucket", options.bucket},
                {"endpoint", options.endpoint},
                {"region", options.region},
                {"credentials-file", absolute(options.credentials_file)},
                {"csi", options.csi},
                {"git", options.git},
                {"user", options.user},
                {"token-file", absolute(options.token_file)},
                {"read-only", options.read_only ? "true" : ""}};
  std::erase_if(all, [](const auto& entry) { return entry.second.empty(); });
  return all;
}

/// Locations of the profile, which must exist, or of all profiles if it is empty.
Locations& locations(Settings& settings, const Kind& kind, const std::string& profile) {
  if (profile.empty()) {
    return settings.*kind.all;
  }
  static_cast<void>(settings.profile(profile)); // Throws if there is none of that name.
  return settings.profiles[profile].data;
}

int run_add(Context& context, const LocationOptions& options, const Kind& kind) {
  const auto sources = static_cast<int>(!options.path.empty()) + !options.claim.empty() +
                       !options.nfs.empty() + !options.bucket.empty() + !options.csi.empty() +
                       !options.git.empty();
  if (sources != 1) {
    throw UsageError(fmt::format(
        "say where {} '{}' is by one of {}", kind.word, printable(options.name),
        kind.all == &Settings::data ? "--path, --claim, --nfs, --bucket, --csi" : "--git, --path"));
  }
  if (options.name.empty() || options.name.find_first_of(":/ \n\t") != std::string::npos) {
    throw UsageError(
        fmt::format("bad name '{}': a name has no ':', '/' or space", printable(options.name)));
  }
  if (!options.nfs.empty() &&
      (options.nfs.find(":/") == std::string::npos || options.nfs[0] == ':')) {
    throw UsageError(fmt::format("--nfs={}: must be SERVER:/PATH", printable(options.nfs)));
  }
  if (options.bucket.empty() &&
      !(options.endpoint + options.region + options.credentials_file).empty()) {
    throw UsageError("--endpoint, --region and --credentials-file need --bucket=URL");
  }
  if (!options.bucket.empty()) {
    static_cast<void>(bucket_at("--bucket", said(options))); // Throws if it does not exist.
  }
  if (holds_password(options.git)) {
    throw UsageError("--git: contains a password, which would be saved and shown: use --user=NAME, "
                     "and DTRAIN_GIT_TOKEN or --token-file for the token");
  }
  Settings settings = read_settings(context.config_file);
  Locations& all = locations(settings, kind, options.profile);
  if (all.contains(options.name) && !options.replace) {
    throw UsageError(
        fmt::format("{} '{}' exists: overwrite it with --replace, or choose another name",
                    kind.word, printable(options.name)));
  }
  all[options.name] = said(options);
  write_settings(context.config_file, settings);
  context.out.write(fmt::format("{}/{} added\n", kind.word, options.name));
  return 0;
}

/// Fields of a location beside its place.
const std::set<std::string, std::less<>> k_details = {"user", "token-file", "endpoint", "region",
                                                      "credentials-file"};

/// A row of `list`: place and NOTES for people, each key by itself for programs.
Record row_of(const std::string& name, const Values& location, const std::string& profile,
              bool for_people) {
  Record row = {{"name", name}};
  if (!for_people) {
    row.insert(row.end(), location.begin(), location.end());
    if (!profile.empty()) {
      row.emplace_back("profile", profile);
    }
    return row;
  }
  std::string where;
  std::vector<std::string> notes;
  for (const auto& [key, value] : location) {
    if (key == "read-only") {
      notes.emplace_back("read-only");
    } else if (k_details.contains(key)) {
      notes.push_back(fmt::format("{} {}", key, value));
    } else {
      where = fmt::format("{} {}", key, value);
    }
  }
  if (!profile.empty()) {
    notes.push_back("profile " + profile);
  }
  row.emplace_back("where", where);
  row.emplace_back("notes", fmt::format("{}", fmt::join(notes, ", ")));
  return row;
}

/// The engine's own, which need no name here.
Record row_of(const Claim& claim, bool for_people) {
  if (!for_people) {
    return {{"name", claim.name},
            {"claim", claim.name},
            {"namespace", claim.namespace_name},
            {"status", claim.status},
            {"size", claim.size},
            {"access-modes", fmt::format("{}", fmt::join(claim.access_modes, ","))}};
  }
  std::vector<std::string> notes = {claim.status, claim.size};
  notes.insert(notes.end(), claim.access_modes.begin(), claim.access_modes.end());
  std::erase(notes, "");
  return {{"namespace", claim.namespace_name},
          {"name", claim.name},
          {"where", "the cluster's claim"},
          {"notes", fmt::format("{}", fmt::join(notes, ", "))}};
}

int run_location_list(Context& context, const LocationListOptions& options, const Kind& kind) {
  const Settings settings = read_settings(context.config_file);
  const bool is_data = kind.all == &Settings::data;
  const bool for_people = options.output.empty();
  std::vector<Record> rows;
  const auto add = [&](const Locations& all, const std::string& profile) {
    for (const auto& [name, location] : all) {
      rows.push_back(row_of(name, location, profile, for_people));
    }
  };
  add(settings.*kind.all, "");
  std::optional<EngineError> unreachable; // Named locations are shown in any case.
  if (is_data) {
    for (const auto& [name, profile] : settings.profiles) {
      add(profile.data, name);
    }
    const Target target = open_target(context, options.target);
    try {
      for (const Claim& claim :
           target.backend->claims(options.all_namespaces ? "" : target.namespace_name)) {
        rows.push_back(row_of(claim, for_people));
      }
    } catch (const EngineError& error) {
      unreachable = error;
    }
  }
  if (!rows.empty() || !for_people) {
    std::vector<std::string> columns = {"name", "where", "notes"};
    if (options.all_namespaces) {
      columns.insert(columns.begin(), "namespace");
    }
    print_records(context.out, columns, rows, options.output);
  }
  if (unreachable) {
    throw *unreachable;
  }
  if (rows.empty()) {
    context.note(
        fmt::format("No {}. Add some with: dtrain {} add NAME --path=DIR", kind.word, kind.word));
  }
  return 0;
}

int run_location_get(Context& context, const LocationOptions& options, const Kind& kind) {
  const Settings settings = read_settings(context.config_file);
  const Locations all =
      kind.all == &Settings::data ? settings.data_of(options.profile) : settings.*kind.all;
  const Values& location = find_location(all, kind.word, options.name);
  if (const auto format = data_format(options.output)) {
    context.out.write(record_data(row_of(options.name, location, "", false), *format));
    return 0;
  }
  for (const auto& [key, value] : location) {
    context.out.write(fmt::format("{}: {}\n", key, printable(value)));
  }
  return 0;
}

int run_location_delete(Context& context, const LocationOptions& options, const Kind& kind) {
  Settings settings = read_settings(context.config_file);
  Locations& all = locations(settings, kind, options.profile);
  static_cast<void>(find_location(all, kind.word, options.name)); // Throws if there is none.
  all.erase(options.name);
  write_settings(context.config_file, settings);
  context.out.write(fmt::format("{}/{} deleted\n", kind.word, options.name));
  return 0;
}

/// Data may be a profile's own.
template <const Kind& kind>
void add_profile(CommandTable& table, const Option& option) {
  if (kind.all == &Settings::data) {
    table.options.push_back(option);
  }
}

template <const Kind& kind>
CommandTable location_list_table(LocationListOptions& options) {
  CommandTable table = {.name = fmt::format("{} list", kind.word),
                        .summary = fmt::format("List named {}", kind.word),
                        .examples = {fmt::format("dtrain {} list", kind.word)},
                        .options = {output_option(options.output, {"json", "yaml"})}};
  if (kind.all == &Settings::data) {
    table.description =
        "Lists the names for --data=NAME:/path of submit: those of 'dtrain data add', of all "
        "profiles, and the persistent volume claims of the namespace, if the backend has them.";
    table.examples.emplace_back("dtrain data list --profile=cluster");
    table.options.push_back({.flags = "-A,--all-namespaces",
                             .target = &options.all_namespaces,
                             .help = "The persistent volume claims of every namespace",
                             .group = "Where"});
    add_target(table, options.target);
  }
  return table;
}

template <const Kind& kind>
CommandTable location_get_table(LocationOptions& options) {
  CommandTable table = {.name = fmt::format("{} get", kind.word),
                        .summary = fmt::format("Show where named {} is", kind.word),
                        .examples = {fmt::format("dtrain {} get mnist", kind.word)},
                        .options = {name_option<kind>(options.name),
                                    output_option(options.output, {"json", "yaml"})}};
  add_profile<kind>(table, profile_option(options.profile));
  return table;
}

template <const Kind& kind>
CommandTable location_delete_table(LocationOptions& options) {
  CommandTable table = {.name = fmt::format("{} delete", kind.word),
                        .summary = fmt::format("Delete a name; the {} itself stays", kind.word),
                        .examples = {fmt::format("dtrain {} delete mnist", kind.word)},
                        .options = {name_option<kind>(options.name)}};
  add_profile<kind>(table, of_profile_option(options.profile));
  return table;
}

template <const Kind& kind>
int add_one(Context& context, const LocationOptions& options) {
  return run_add(context, options, kind);
}
template <const Kind& kind>
int list_all(Context& context, const LocationListOptions& options) {
  return run_location_list(context, options, kind);
}
template <const Kind& kind>
int get_one(Context& context, const LocationOptions& options) {
  return run_location_get(context, options, kind);
}
template <const Kind& kind>
int delete_one(Context& context, const LocationOptions& options) {
  return run_location_delete(context, options, kind);
}

} // namespace

Invocation data_add_command() { return bind(data_add_table, add_one<k_data_kind>); }
Invocation data_list_command() {
  return bind(location_list_table<k_data_kind>, list_all<k_data_kind>);
}
Invocation data_get_command() {
  return bind(location_get_table<k_data_kind>, get_one<k_data_kind>);
}
Invocation data_delete_command() {
  return bind(location_delete_table<k_data_kind>, delete_one<k_data_kind>);
}
Invocation code_add_command() { return bind(code_add_table, add_one<k_code_kind>); }
Invocation code_list_command() {
  return bind(location_list_table<k_code_kind>, list_all<k_code_kind>);
}
Invocation code_get_command() {
  return bind(location_get_table<k_code_kind>, get_one<k_code_kind>);
}
Invocation code_delete_command() {
  return bind(location_delete_table<k_code_kind>, delete_one<k_code_kind>);
}

} // namespace dtrain
