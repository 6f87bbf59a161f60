#include "submit/fields/job_field_groups.h"

namespace dtrain {
namespace {

constexpr const char* k_code = "Code, data and secrets";
constexpr const char* k_board = "TensorBoard";
constexpr const char* k_templates = "Templates";

constexpr JobField k_code_fields[] = {
    {.key = "syncMode",
     .flags = "--sync-mode",
     .member = member(&JobSpec::sync_mode),
     .metavar = "MODE",
     .help = "Send code to the ranks, which start in it: a Git repository (git), or a local folder "
             "without what its .dtrainignore lists (local)",
     .group = k_code,
     .choices = {k_sync_git, k_sync_folder}},
    {.key = "syncSource",
     .flags = "--sync-source",
     .member = member(&JobSpec::sync_source),
     .metavar = "URL[@REF]|DIR",
     .help = "Repository, with its branch, tag or commit; or the folder (default: the current one)",
     .group = k_code},
    {.key = "syncUser",
     .flags = "--sync-user",
     .member = member(&JobSpec::sync_user),
     .metavar = "NAME",
     .help = "User for the repository; the token comes from DTRAIN_GIT_TOKEN",
     .group = k_code,
     .env = "DTRAIN_GIT_USER"},
    {.key = "syncTokenFile",
     .flags = "--sync-token-file",
     .member = member(&JobSpec::sync_token_file),
     .metavar = "FILE",
     .help = "File whose first line is the token",
     .group = k_code,
     .complete = Complete::file},
    {.key = "configFiles",
     .flags = "--config-file",
     .member = member(&JobSpec::config_files),
     .metavar = "/HERE/FILE:/THERE/FILE",
     .help = "Local file to put at that path for the ranks; may be repeated",
     .group = k_code},
    {.key = "envFiles",
     .flags = "--env-file",
     .member = member(&JobSpec::env_files),
     .metavar = "FILE",
     .help = "File of KEY=VALUE lines: environment variables of every rank, hidden from plans and "
             "output; may be repeated",
     .group = k_code,
     .complete = Complete::file},
    {.key = "secrets",
     .flags = "--secret",
     .member = member(&JobSpec::secrets),
     .metavar = "NAME",
     .help = "Environment variables from ~/.config/dtrain/secrets/NAME, or from a Secret of the "
             "cluster; may be repeated",
     .group = k_code},
    {.key = "tensorboard",
     .flags = "--tensorboard",
     .member = member(&JobSpec::tensorboard),
     .metavar = "",
     .help = "Run TensorBoard beside the job; get shows its address, 'dtrain tensorboard' opens it",
     .group = k_board},
    {.key = "logdir",
     .flags = "--logdir",
     .member = member(&JobSpec::logdir),
     .metavar = "DIR",
     .help = "Folder that TensorBoard shows (default: /training_logs)",
     .group = k_board},
    {.key = "templates",
     .flags = "--template",
     .member = member(&JobSpec::templates),
     .metavar = "DIR|FILE",
     .help =
         "Make the job from your own templates; start with 'dtrain template copy'; may be repeated",
     .group = k_templates,
     .complete = Complete::file},
    {.key = "templateValues",
     .flags = "--set",
     .member = member(&JobSpec::template_values),
     .metavar = "KEY=VALUE",
     .help = "Value of {{KEY}} in your templates; may be repeated",
     .group = k_templates},
};

} // namespace

std::span<const JobField> code_fields() { return k_code_fields; }

} // namespace dtrain
