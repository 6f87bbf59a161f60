#include "backends/supervised/store/saved_environment.h"

#include "backends/support/os/split_at_nul.h"

#include <cstdlib>
#include <functional>

namespace dtrain {

namespace {

/// Calls `visit` with name and value of each.
void for_each_variable(std::string_view text,
                       const std::function<void(std::string_view, std::string_view)>& visit) {
  for (const std::string_view variable : split_at_nul(text)) {
    if (const auto equals = variable.find('='); equals != std::string_view::npos && equals > 0) {
      visit(variable.substr(0, equals), variable.substr(equals + 1));
    }
  }
}

} // namespace

std::string environment_text(const char* const* variables) {
  std::string text;
  for (; *variables != nullptr; ++variables) {
    text += *variables;
    text += '\0';
  }
  return text;
}

void set_environment(const std::string& text) {
  clearenv();
  for_each_variable(text, [](std::string_view name, std::string_view value) {
    setenv(std::string(name).c_str(), std::string(value).c_str(), 1);
  });
}

std::optional<std::string> saved_variable(std::string_view text, std::string_view name) {
  std::optional<std::string> found;
  for_each_variable(text, [&](std::string_view key, std::string_view value) {
    if (key == name) {
      found = value;
    }
  });
  return found;
}

} // namespace dtrain
