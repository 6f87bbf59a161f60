// One quoting routine for each kind of text that dtrain writes. Arguments stay vectors until the
// last step; this is the last step.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace dtrain {

/// True where `text` is well-formed UTF-8 (no surrogates, no overlong forms).
bool is_utf8(std::string_view text);

/// A single POSIX shell word. Throws UsageError on a NUL byte.
std::string quote_sh(std::string_view text);

/// A YAML 1.2 flow scalar that every parser reads back as this string: double-quoted, or
/// `!!binary "…"` where the bytes are not UTF-8.
std::string quote_yaml(std::string_view text);

/// The same as a block literal, to follow "key:" or "-" at the end of a line, with lines indented
/// by `indent`, so that text of several lines stays readable. None for text of one line, and for
/// text that a parser might read differently (line breaks or blanks at its ends, controls).
std::optional<std::string> literal_yaml(std::string_view text, std::size_t indent);

/// A JSON string. Throws UsageError where the bytes are not UTF-8.
std::string quote_json(std::string_view text);

} // namespace dtrain
