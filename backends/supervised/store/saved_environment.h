// The environment in which a job was submitted, stored while the job is suspended: its ranks get it
// again, whoever resumes it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace dtrain {

inline constexpr const char* k_environment_file = "environment"; ///< Private, as all of the folder.

/// KEY=VALUE, a NUL after each.
std::string environment_text(const char* const* variables);

/// Makes it this process's environment, in place of what that has.
void set_environment(const std::string& text);

/// A variable of it.
std::optional<std::string> saved_variable(std::string_view text, std::string_view name);

} // namespace dtrain
