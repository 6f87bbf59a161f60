// Tab completion. The shells' scripts (completions/) are thin: they call `dtrain __complete SHELL
// WORD…` and pass on its output. The candidates come from the same option tables as the parser and
// --help.
#pragma once

#include "submit/options/option_table.h"

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace dtrain {

struct Candidate {
  std::string word;        ///< The whole word: "--output=json" where "--output=js" was typed.
  std::string description; ///< One line; may be empty.
};

struct Completions {
  std::vector<Candidate> candidates;
  bool files = false;       ///< The shell should add file names …
  bool directories = false; ///< … or only folders; after "--flag=" where the word has that.
  bool no_space = false;    ///< The word is not complete when a candidate is in.
};

/// Names that only a look at the world gives: jobs, instances, templates, profiles. `args` are the
/// words between the command and the one being typed, for --namespace or the job. Asked only when
/// needed; whatever it throws is as if it had no names.
using NameSource = std::function<std::vector<Candidate>(const Option& option,
                                                        const std::vector<std::string>& args)>;

/// Candidates for the last of `words` (the words after the program's name; the last one is being
/// typed and may be empty). `groups`: the first words of two-word commands, with their
/// descriptions.
Completions complete(const std::vector<CommandTable>& commands,
                     const std::vector<std::string>& words, const NameSource& names,
                     const std::vector<Candidate>& groups = {});

/// Prints for the script: a line of directives ("files directories nospace"), then a line a
/// candidate, "WORD<tab>DESCRIPTION".
std::string completion_text(const Completions& completions);

/// A word as the user has typed it, without its quotes and backslashes; a quote may still be open.
/// For bash, which hands words over as they stand.
std::string unquote_typed(std::string_view word);

/// The shells that completion_script knows.
const std::vector<std::string>& completion_shells();

/// The script for a shell. Throws UsageError for one that is not known.
std::string_view completion_script(std::string_view shell);

} // namespace dtrain
