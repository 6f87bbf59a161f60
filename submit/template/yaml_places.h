// Whether the values in a YAML template stand where whole scalars can. What the template becomes is
// looked at with a mark of its own in the place of every value, full of what YAML gives a meaning
// to: parsed, each mark must be one whole scalar, or stand in a comment.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace dtrain {

/// The marks of one text, told apart from the text itself.
class YamlMarks {
 public:
  /// The forms of a value: a string, a number or boolean, and bytes that are not UTF-8.
  enum class Form { quoted, bare, binary };

  YamlMarks(std::string_view text, Form form);

  /// The text in place of value `index`.
  std::string written(std::size_t index) const;
  /// The value that a parser must read there.
  std::string read(std::size_t index) const;

  Form form() const { return form_; }
  bool are_in(std::string_view text) const { return text.find(prefix_) != std::string_view::npos; }
  /// The first that is in `text`, which has one.
  std::size_t first_in(std::string_view text) const;

 private:
  std::string core(std::size_t index) const;

  std::string prefix_;
  Form form_;
};

/// The fault that was found.
struct YamlFault : std::runtime_error {
  YamlFault(std::size_t at, const std::string& message) : std::runtime_error(message), mark(at) {}
  static constexpr std::size_t k_none = static_cast<std::size_t>(-1);
  std::size_t mark; ///< Whose place it is; k_none: the text as such is no YAML.
};

/// For each of `count` marks in `text`, the indentation of a block literal in its place; 0: a
/// literal is not possible there. Throws YamlFault.
std::vector<std::size_t> yaml_places(const std::string& text, const YamlMarks& marks,
                                     std::size_t count);

/// "what it becomes is no YAML: WHY at 'LINE'"
std::string no_yaml(const std::string& text, int line, const std::string& why);

} // namespace dtrain
