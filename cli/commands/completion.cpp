#include "submit/options/completion.h"
#include "cli/commands.h"

namespace dtrain {
namespace {

struct CompletionOptions {
  std::string shell;
};

CommandTable completion_table(CompletionOptions& options) {
  return {.name = "completion",
          .summary = "Print a completion script for your shell",
          .description = "Prints a script for your shell that completes commands, flags, and the "
                         "names of jobs, instances, templates and profiles.",
          .examples = {"# bash: for this shell, and for every new one",
                       "source <(dtrain completion bash)",
                       "dtrain completion bash > ~/.local/share/bash-completion/completions/dtrain",
                       "# zsh, into a folder of $fpath", "dtrain completion zsh > ~/.zfunc/_dtrain",
                       "# fish", "dtrain completion fish > ~/.config/fish/completions/dtrain.fish"},
          .options = {{.flags = "SHELL",
                       .target = &options.shell,
                       .help = "The shell you use",
                       .complete = Complete::choices,
                       .choices = completion_shells(),
                       .required = true,
                       .positional = true}}};
}

int run_completion(Context& context, const CompletionOptions& options) {
  context.out.write(completion_script(options.shell));
  return 0;
}

} // namespace

Invocation completion_command() { return bind(completion_table, run_completion); }

} // namespace dtrain
