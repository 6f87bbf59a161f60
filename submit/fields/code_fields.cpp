#include "submit/fields/job_field_groups.h"

namespace dtrain {
namespace {

constexpr const char* k_code = "Code, data and secrets";
constexpr const char* k_board = "TensorBoard";
constexpr const char* k_templates = "Templates";

} // namespace

std::vector<JobField> code_fields() {
  return {
      {.key = "syncMode",
       .flags = "--sync-mode",
       .member = member(&JobSpec::sync_mode),
       .metavar = "MODE",
       .help = "Bring code to the ranks, which start in it: a Git repository, or a local folder "
               "as it is, but for what its .dtrainignore names",
       .group = k_code,
       .choices = {"git", "local"}},
      {.key = "syncSource",
       .flags = "--sync-source",
       .member = member(&JobSpec::sync_source),
       .metavar = "URL[@REF]|DIR",
       .help = "The repository and its branch, tag or commit; or the folder (default: this one)",
       .group = k_code},
      {.key = "syncUser",
       .flags = "--sync-user",
       .member = member(&JobSpec::sync_user),
       .metavar = "NAME",
       .help = "User of the repository; the token is DTRAIN_GIT_TOKEN's value",
       .group = k_code,
       .env = "DTRAIN_GIT_USER"},
      {.key = "syncTokenFile",
       .flags = "--sync-token-file",
       .member = member(&JobSpec::sync_token_file),
       .metavar = "FILE",
       .help = "Or the first line of a file",
       .group = k_code,
       .complete = Complete::file},
      {.key = "syncImage",
       .flags = "--sync-image",
       .member = member(&JobSpec::sync_image),
       .metavar = "IMAGE",
       .help =
           "Container image with git (of a folder: tar; of a bucket: dtrain), where the job's has "
           "none",
       .group = k_code},
      {.key = "configFiles",
       .flags = "--config-file",
       .member = member(&JobSpec::config_files),
       .metavar = "/HERE/FILE:/THERE/FILE",
       .help = "File of this machine that the ranks find at that path; may be repeated",
       .group = k_code},
      {.key = "envFiles",
       .flags = "--env-file",
       .member = member(&JobSpec::env_files),
       .metavar = "FILE",
       .help = "Variables of every rank, KEY=VALUE a line, that no plan or output shows; may be "
               "repeated",
       .group = k_code,
       .complete = Complete::file},
      {.key = "secrets",
       .flags = "--secret",
       .member = member(&JobSpec::secrets),
       .metavar = "NAME",
       .help = "The same from ~/.config/dtrain/secrets/NAME, or a Secret of the cluster; may be "
               "repeated",
       .group = k_code},
      {.key = "tensorboard",
       .flags = "--tensorboard",
       .member = member(&JobSpec::tensorboard),
       .metavar = "",
       .help =
           "Run TensorBoard beside the job; get shows its address, 'dtrain tensorboard' opens it",
       .group = k_board},
      {.key = "logdir",
       .flags = "--logdir",
       .member = member(&JobSpec::logdir),
       .metavar = "DIR",
       .help = "Folder that TensorBoard shows (default: /training_logs)",
       .group = k_board},
      {.key = "tensorboardImage",
       .flags = "--tensorboard-image",
       .member = member(&JobSpec::tensorboard_image),
       .metavar = "IMAGE",
       .help = "Container image of TensorBoard (default: the job's); programs of this machine need "
               "none",
       .group = k_board},
      {.key = "templates",
       .flags = "--template",
       .member = member(&JobSpec::templates),
       .metavar = "DIR|FILE",
       .help = "Make the job from templates of yours, as 'dtrain template copy' gives them to "
               "change; may be repeated",
       .group = k_templates,
       .complete = Complete::file},
      {.key = "templateValues",
       .flags = "--set",
       .member = member(&JobSpec::template_values),
       .metavar = "KEY=VALUE",
       .help = "Give {{KEY}} of your templates a value; may be repeated",
       .group = k_templates},
  };
}

} // namespace dtrain
