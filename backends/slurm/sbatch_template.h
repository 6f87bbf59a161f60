// Templates of scripts for sbatch: `#SBATCH --job-name={{name}}` is written as Slurm reads it, all
// else as in sh. Slurm reads its options from the lines that begin with #SBATCH, up to the first
// that is a command; to the shell they are comments.
#pragma once

#include "submit/template/template_kind.h"

#include <string>
#include <string_view>

namespace dtrain::slurm {

/// One word, or the rest of one, on a line that begins with #SBATCH. Throws UsageError for text
/// with a newline or a NUL byte, which such a line cannot contain.
std::string quote_sbatch(std::string_view text);

/// The kind of files NAME.sbatch. On a line of #SBATCH a tag must be the whole value of an option.
extern const TemplateKind k_sbatch_kind;

} // namespace dtrain::slurm
