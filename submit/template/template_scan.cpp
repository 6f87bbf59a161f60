#include "submit/template/template_scan.h"

#include "submit/errors.h"

#include <fmt/format.h>

#include <algorithm>

namespace dtrain {
namespace {

constexpr std::size_t k_deepest_sections = 32;

[[noreturn]] void fail_at(const TemplateSource& source, std::size_t line,
                          std::string_view message) {
  throw UsageError(fmt::format("{}: {}", source.where(line), message));
}

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = std::min(text.find_first_not_of(" \t\r\n"), text.size());
  const std::size_t end = text.find_last_not_of(" \t\r\n");
  return end == std::string_view::npos ? std::string_view() : text.substr(begin, end + 1 - begin);
}

bool is_tag_name(std::string_view text) {
  return text == "." || (!text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '_';
         }));
}

} // namespace

std::string TemplateTag::text() const {
  const char* sigil = kind == Kind::section    ? "#"
                      : kind == Kind::inverted ? "^"
                      : kind == Kind::close    ? "/"
                      : kind == Kind::comment  ? "!"
                                               : "";
  return fmt::format("{{{{{}{}}}}}", sigil, name);
}

std::string TemplateSource::where(std::size_t line) const {
  const auto& [file, number] =
      line >= 1 && line <= lines.size() ? lines[line - 1] : std::pair(name, line);
  return fmt::format("{}:{}", printable(file), number);
}

std::vector<TemplateTag> scan_template(const TemplateSource& source) {
  const std::string_view text = source.text;
  std::vector<TemplateTag> tags;
  std::vector<std::size_t> open;
  std::size_t line = 1;
  std::size_t counted = 0;
  for (std::size_t at = text.find("{{"); at != std::string_view::npos; at = text.find("{{", at)) {
    line +=
        static_cast<std::size_t>(std::count(text.begin() + static_cast<std::ptrdiff_t>(counted),
                                            text.begin() + static_cast<std::ptrdiff_t>(at), '\n'));
    counted = at;
    const std::size_t close = text.find("}}", at + 2);
    if (close == std::string_view::npos) {
      fail_at(source, line, "{{ is not closed by }}");
    }
    const std::string_view inside = trimmed(text.substr(at + 2, close - at - 2));
    TemplateTag tag;
    tag.begin = at;
    tag.end = close + 2;
    tag.line = line;
    const char sigil = inside.empty() ? '\0' : inside.front();
    const std::string shown = printable(inside.substr(0, 40));
    switch (sigil) {
    case '{':
    case '&':
      fail_at(source, line,
              fmt::format("{{{{{}}}}} would put a value in unquoted; write {{{{x}}}}", shown));
    case '>':
    case '=':
      fail_at(
          source, line,
          fmt::format("{{{{{}}}}}: partials stand on a line of their own, as {{{{>FILE}}}}, and "
                      "other delimiters are not supported",
                      shown));
    case '#':
      tag.kind = TemplateTag::Kind::section;
      break;
    case '^':
      tag.kind = TemplateTag::Kind::inverted;
      break;
    case '/':
      tag.kind = TemplateTag::Kind::close;
      break;
    case '!':
      tag.kind = TemplateTag::Kind::comment;
      break;
    default:
      break;
    }
    const bool plain = tag.kind == TemplateTag::Kind::variable;
    if (tag.kind != TemplateTag::Kind::comment) {
      tag.name = trimmed(plain ? inside : inside.substr(1));
      if (!is_tag_name(tag.name)) {
        fail_at(source, line,
                fmt::format("{{{{{}}}}}: a name is letters, digits and '_', or '.'", shown));
      }
    }
    if (tag.kind == TemplateTag::Kind::section || tag.kind == TemplateTag::Kind::inverted) {
      open.push_back(tags.size());
      if (open.size() > k_deepest_sections) {
        fail_at(source, line,
                fmt::format("{}: sections nest deeper than {}", tag.text(), k_deepest_sections));
      }
    } else if (tag.kind == TemplateTag::Kind::close) {
      if (open.empty() || tags[open.back()].name != tag.name) {
        fail_at(source, line, fmt::format("{} closes no section that is open here", tag.text()));
      }
      tag.open = open.back();
      open.pop_back();
    }
    at = tag.end;
    tags.push_back(std::move(tag));
  }
  if (!open.empty()) {
    const TemplateTag& tag = tags[open.back()];
    fail_at(source, tag.line, fmt::format("{} is not closed by {{{{/{}}}}}", tag.text(), tag.name));
  }
  return tags;
}

namespace {

constexpr char k_value = 'v'; ///< Stands for a whole value among the significant characters.
constexpr char k_line = '\n'; ///< A line of block YAML has just begun.

/// Where the text stands at some offset. What a section must leave as it found it.
struct Place {
  char quote = '\0'; ///< ' or " or `, while inside.
  int brackets = 0;  ///< YAML's flow collections; sh's $(( )).
  bool comment = false;
  bool operator==(const Place&) const = default;
};

/// Walks text and tags together; the kinds of template differ in step() and complaint().
class Walker {
 public:
  Walker(const TemplateSource& source, std::vector<TemplateTag>& tags)
      : text_(source.text), source_(source), tags_(tags) {}
  virtual ~Walker() = default;

  void walk() {
    std::vector<Place> at_open(tags_.size());
    auto tag = tags_.begin();
    for (std::size_t i = 0; i < text_.size();) {
      if (tag == tags_.end() || i < tag->begin) {
        i = step(i, tag == tags_.end() ? text_.size() : tag->begin);
        continue;
      }
      const auto index = static_cast<std::size_t>(tag - tags_.begin());
      at_open[index] = place_;
      if (tag->kind == TemplateTag::Kind::close && !(at_open[tag->open] == place_)) {
        fail_at(source_, tag->line,
                fmt::format("{} ends a section that opens or closes a quote, "
                            "bracket or comment; it must do both or neither",
                            tag->text()));
      }
      if (tag->kind == TemplateTag::Kind::variable) {
        const std::string problem = complaint(*tag);
        if (!problem.empty()) {
          fail_at(source_, tag->line, fmt::format("{} {}", tag->text(), problem));
        }
        significant_ = k_value;
      }
      i = tag->end;
      ++tag;
    }
  }

 protected:
  /// Takes in the character at `i`, and those after it that belong to it, below `end`.
  virtual std::size_t step(std::size_t i, std::size_t end) = 0;
  /// Why a variable must not stand here; empty: it may.
  virtual std::string complaint(TemplateTag& tag) = 0;

  char at(std::size_t i) const { return i < text_.size() ? text_[i] : '\n'; }
  static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

  std::string_view text_;
  Place place_;
  char significant_ = k_line; ///< The last character that is not blank, k_value or k_line.

 private:
  const TemplateSource& source_;
  std::vector<TemplateTag>& tags_;
};

class YamlWalker : public Walker {
 public:
  using Walker::Walker;

 private:
  std::size_t step(std::size_t i, std::size_t end) override {
    const char c = text_[i];
    if (c == '\n') {
      end_line(i);
    } else if (place_.comment || in_block_scalar_ || in_plain_) {
      // None of them means anything to YAML.
    } else if (place_.quote == '"' && c == '\\') {
      return std::min(i + 2, end);
    } else if (place_.quote == '\'' && c == '\'' && i + 1 < end && text_[i + 1] == '\'') {
      return i + 2;
    } else if (place_.quote != '\0') {
      place_.quote = c == place_.quote ? '\0' : place_.quote;
    } else if (c == '#' && (i == 0 || is_blank(text_[i - 1]))) {
      place_.comment = true;
    } else if ((c == '"' || c == '\'') && significant_ != k_value) {
      begin_scalar(i);
      place_.quote = c;
    } else if (!is_blank(c)) {
      take(i);
    }
    return i + 1;
  }

  void take(std::size_t i) {
    const char c = text_[i];
    const bool starts = significant_ != k_value;
    const bool indicator = is_blank(at(i + 1));
    if ((c == '[' || c == '{') && (starts || place_.brackets > 0)) {
      ++place_.brackets;
      plain_ = false;
      significant_ = c;
    } else if ((c == ']' || c == '}') && place_.brackets > 0) {
      --place_.brackets;
      significant_ = k_value;
    } else if (c == ',' && place_.brackets > 0) {
      significant_ = c;
    } else if (c == ':' && indicator && !in_property_) {
      if (place_.brackets == 0) {
        enter(scalar_column_);
      }
      significant_ = c;
    } else if (c == '-' && indicator && starts) {
      enter(column(i));
      significant_ = c;
    } else {
      if (starts) {
        begin_scalar(i);
        in_property_ = c == '!' || c == '&' || c == '*'; // '!a: b' has a tag, not a key.
      }
      plain_ = true; // Behind a value too: a parser may take it for a scalar that begins there.
    }
  }

  void begin_scalar(std::size_t i) {
    if (significant_ == k_line || significant_ == '-') {
      scalar_column_ = column(i);
    }
    plain_ = false;
    in_property_ = false;
    significant_ = k_value;
  }

  /// A key or dash at `column` begins, and ends what stands as deep or deeper.
  void enter(std::ptrdiff_t column) {
    leave(column);
    parents_.push_back(column);
  }

  void leave(std::ptrdiff_t column) {
    while (!parents_.empty() && parents_.back() >= column) {
      parents_.pop_back();
    }
  }

  std::ptrdiff_t column(std::size_t i) const {
    return static_cast<std::ptrdiff_t>(i - line_begin_);
  }

  /// Text goes on for as long as lines are indented deeper than the key or dash that has it: a
  /// block scalar's behind | or >, and a plain scalar's behind a line that ends with one.
  void end_line(std::size_t i) {
    const std::string_view line = text_.substr(line_begin_, i - line_begin_);
    const bool in_block = place_.quote == '\0' && place_.brackets == 0;
    const bool marker = trimmed(line) == "---" || trimmed(line) == "..." || line.starts_with('%');
    if (in_block && !in_block_scalar_ && significant_ == k_value && plain_ && !marker) {
      const std::size_t head = trim_comment(line).find_last_not_of("0123456789+- \t\r");
      in_block_scalar_ = head != std::string_view::npos &&
                         (line[head] == '|' || line[head] == '>') &&
                         (head == 0 || is_blank(line[head - 1]));
      in_plain_ = !in_block_scalar_;
    }
    place_.comment = false;
    line_begin_ = i + 1;
    if (in_block) {
      end_text();
      significant_ = k_line;
    }
  }

  static std::string_view trim_comment(std::string_view line) {
    return line.substr(0, std::min(line.find(" #"), line.size()));
  }

  /// Whether the line that now begins ends the text before it.
  void end_text() {
    const std::size_t first = std::min(text_.find_first_not_of(" \t\r", line_begin_), text_.size());
    const bool tag_line = text_.substr(first, 2) == "{{" && at(first + 2) != '\n' &&
                          std::string_view("#^/!").find(at(first + 2)) != std::string_view::npos;
    if (at(first) == '\n' || tag_line) {
      return;
    }
    const std::string_view marker = text_.substr(line_begin_, 3);
    const bool document = marker == "---" || marker == "...";
    if (document || (!parents_.empty() && column(first) <= parents_.back())) {
      in_block_scalar_ = false;
      in_plain_ = false;
    }
    leave(column(first));
  }

  std::string complaint(TemplateTag& tag) override {
    if (place_.comment) {
      return {};
    }
    if (place_.quote != '\0') {
      return "stands inside quotes; take them away, it brings its own";
    }
    if (in_block_scalar_ || in_plain_) {
      return "stands inside a scalar of several lines, whose text a value could end";
    }
    const char before = tag.begin == 0 ? '\n' : text_[tag.begin - 1];
    const std::size_t next = std::min(text_.find_first_not_of(" \t\r", tag.end), text_.size());
    const bool may_be_key = significant_ == k_line || significant_ == '-' || place_.brackets > 0;
    const bool is_key = may_be_key && at(next) == ':' && is_blank(at(next + 1));
    const bool may_start =
        is_blank(before) || before == '[' || before == ',' || before == '{' || before == '}';
    const bool starts_scalar =
        may_start && (significant_ == k_line ? is_key : significant_ != k_value);
    const bool ends_scalar =
        at(next) == '\n' || is_key || text_.substr(next, 2) == "{{" ||
        (at(next) == '#' && next > tag.end) ||
        (place_.brackets > 0 && (at(next) == ',' || at(next) == ']' || at(next) == '}'));
    constexpr std::ptrdiff_t k_deeper = 2;
    if ((significant_ == ':' || significant_ == '-') && place_.brackets == 0 && !parents_.empty() &&
        text_.substr(tag.end, 1) == "\n") {
      const auto indent = static_cast<std::size_t>(parents_.back() + k_deeper);
      tag.literal_indent = has_comment(tag.end + 1, indent) ? 0 : indent;
    }
    begin_scalar(tag.begin);
    return starts_scalar && ends_scalar
               ? std::string()
               : "must be a whole scalar of its own, as in 'key: {{x}}' or '- {{x}}'";
  }

  /// Whether a comment behind `begin` stands so deep that a block literal would take it in.
  bool has_comment(std::size_t begin, std::size_t indent) const {
    while (begin < text_.size()) {
      const std::size_t end = std::min(text_.find('\n', begin), text_.size());
      std::string line(text_.substr(begin, end - begin));
      for (std::size_t open = 0; (open = line.find("{{")) != std::string::npos;) {
        const std::size_t close = line.find("}}", open);
        line.erase(open, close == std::string::npos ? close : close + 2 - open);
      }
      const std::size_t first = line.find_first_not_of(" \t\r");
      if (first != std::string::npos && line[first] == '#' && first >= indent) {
        return true;
      }
      begin = end + 1;
    }
    return false;
  }

  std::size_t line_begin_ = 0;
  std::ptrdiff_t scalar_column_ = -1;   ///< Where the line's last key, or what may be one, begins.
  std::vector<std::ptrdiff_t> parents_; ///< Columns of the keys and dashes around, outer first.
  bool plain_ = false;                  ///< The last scalar has no quotes.
  bool in_property_ = false;            ///< It is a tag, an anchor or an alias.
  bool in_plain_ = false;
  bool in_block_scalar_ = false;
};

class ShWalker : public Walker {
 public:
  using Walker::Walker;

 private:
  std::size_t step(std::size_t i, std::size_t end) override {
    const char c = text_[i];
    if (place_.comment) {
      place_.comment = c != '\n';
    } else if (place_.quote != '\'' && c == '\\') {
      return std::min(i + 2, end);
    } else if (place_.quote != '\0') {
      place_.quote = c == place_.quote ? '\0' : place_.quote;
    } else if (c == '\'' || c == '"' || c == '`') {
      place_.quote = c;
    } else if (c == '#' && place_.brackets == 0 && begins_word(i)) {
      place_.comment = true;
    } else if (text_.substr(i, 3) == "$((") {
      ++place_.brackets;
      return std::min(i + 3, end);
    } else if (text_.substr(i, 2) == "))" && place_.brackets > 0) {
      --place_.brackets;
      return std::min(i + 2, end);
    } else if (text_.substr(i, 2) == "<<" && place_.brackets == 0) {
      here_document_ = true;
    }
    return i + 1;
  }

  bool begins_word(std::size_t i) const {
    return i == 0 || std::string_view(" \t\n;&|<>()").find(text_[i - 1]) != std::string_view::npos;
  }

  std::string complaint(TemplateTag&) override {
    return place_.comment    ? "stands in a comment, which a value's newline would end"
           : place_.quote    ? "stands inside quotes; take them away, it brings its own"
           : place_.brackets ? "stands inside $(( )), where a value would be computed"
           : here_document_  ? "stands after a here-document, where quotes mean nothing"
                             : "";
  }

  bool here_document_ = false;
};

class JsonWalker : public Walker {
 public:
  using Walker::Walker;

 private:
  std::size_t step(std::size_t i, std::size_t end) override {
    const char c = text_[i];
    if (place_.quote != '\0' && c == '\\') {
      return std::min(i + 2, end);
    }
    if (c == '"') {
      place_.quote = place_.quote == '\0' ? c : '\0';
    }
    return i + 1;
  }

  std::string complaint(TemplateTag&) override {
    return place_.quote != '\0' ? "stands inside a string; take the quotes away, it brings its own"
                                : "";
  }
};

} // namespace

void check_tag_places(const TemplateSource& source, TemplateKind kind,
                      std::vector<TemplateTag>& tags) {
  switch (kind) {
  case TemplateKind::yaml:
    return YamlWalker(source, tags).walk();
  case TemplateKind::sh:
    return ShWalker(source, tags).walk();
  case TemplateKind::json:
    return JsonWalker(source, tags).walk();
  }
}

} // namespace dtrain
