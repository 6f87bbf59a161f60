// Man pages from option tables, in mdoc(7), so that --help and the manual cannot disagree.
#pragma once

#include "submit/options/environment.h"
#include "submit/options/option_table.h"

#include <string>
#include <string_view>
#include <vector>

namespace dtrain {

struct ManContext {
  std::string program;               ///< "dtrain"
  std::string version;               ///< "0.1.0"
  std::string date;                  ///< "November 21, 2026"
  std::vector<std::string> see_also; ///< "dtrain-environment 7"
};

/// "dtrain-template-show": the page's name, without its section.
std::string man_page_name(std::string_view program, const CommandTable& command);

/// The page of one command, in section 1.
std::string man_page(const ManContext& context, const CommandTable& command);

/// The section on job files that dtrain-submit(1) has besides.
std::string man_job_file();

/// Lists in dtrain-environment(7): variables with their meaning, and variables that set defaults of
/// the commands' options, by name.
std::string man_variables(const std::vector<EnvironmentVariable>& variables);
std::string man_variables_of_options(const std::vector<CommandTable>& commands);

/// The program's own page: what it is, and its commands.
std::string man_overview(const ManContext& context, std::string_view summary,
                         std::string_view description, const std::vector<CommandTable>& commands);

/// `text` for a line of running text: nothing in it means anything to mdoc.
std::string man_text(std::string_view text);

} // namespace dtrain
