#include "submit/template/template_scan.h"

#include "submit/errors.h"
#include "submit/text/trimmed.h"

#include <fmt/format.h>

#include <algorithm>

namespace dtrain {
namespace {

constexpr std::size_t k_deepest_sections = 32;

[[noreturn]] void fail_at(const TemplateSource& source, std::size_t line,
                          std::string_view message) {
  throw UsageError(fmt::format("{}: {}", source.where(line), message));
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
                fmt::format("{{{{{}}}}}: bad name: use letters, digits and '_', or '.'", shown));
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

/// The lexical state at some offset, which a section must leave as it found it.
struct Place {
  char quote = '\0'; ///< ' or " or `, while inside.
  int brackets = 0;  ///< $(( ))
  bool comment = false;
  bool operator==(const Place&) const = default;
};

/// Walks text and tags together; the kinds of template differ in step() and complaint().
class Walker {
 public:
  Walker(const TemplateSource& source, std::vector<TemplateTag>& tags)
      : text_(source.text), source_(source), tags_(tags) {}
  virtual ~Walker() = default;

  /// Up to the last tag: the text after it decides nothing.
  void walk() {
    std::vector<Place> at_open(tags_.size());
    auto tag = tags_.begin();
    for (std::size_t i = 0; tag != tags_.end();) {
      if (i < tag->begin) {
        i = step(i, tag->begin);
        continue;
      }
      const auto index = static_cast<std::size_t>(tag - tags_.begin());
      at_open[index] = place_;
      if (tag->kind == TemplateTag::Kind::close && !(at_open[tag->open] == place_)) {
        fail_at(source_, tag->line,
                fmt::format("{} ends a section that opens a quote, bracket or comment without "
                            "closing it, or closes one that it did not open",
                            tag->text()));
      }
      if (tag->kind == TemplateTag::Kind::variable) {
        const std::string problem = complaint(*tag);
        if (!problem.empty()) {
          fail_at(source_, tag->line, fmt::format("{} {}", tag->text(), problem));
        }
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

  std::string_view text_;
  Place place_;
  const TemplateSource& source_;
  std::vector<TemplateTag>& tags_;
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

  /// Throws where that depends on which sections are entered.
  bool begins_word(std::size_t i) const {
    constexpr int k_deepest = 8;
    const int before = before_word(i, k_deepest);
    if (before == k_either) {
      fail_at(
          source_, tags_.at(tag_before(i)).line,
          "a # right after a section's tag may or may not begin a comment: put a space between");
    }
    return before == k_break;
  }

  static constexpr int k_break = 1; ///< What may come before a place: the end of a word …
  static constexpr int k_word = 2;  ///< … or some of one.
  static constexpr int k_either = k_break | k_word;

  int before_word(std::size_t i, int deepest) const {
    const std::size_t index = tag_before(i);
    if (index == tags_.size()) {
      const bool breaks =
          i == 0 || std::string_view(" \t\n;&|<>()").find(text_[i - 1]) != std::string_view::npos;
      return breaks ? k_break : k_word;
    }
    const TemplateTag& tag = tags_[index];
    if (tag.kind == TemplateTag::Kind::variable) {
      return k_word;
    }
    if (deepest == 0) {
      return k_either;
    }
    int before = before_word(tag.begin, deepest - 1);
    if (tag.kind == TemplateTag::Kind::close) { // The section may not be entered.
      before |= before_word(tags_[tag.open].begin, deepest - 1);
    } else if (tag.kind == TemplateTag::Kind::section) { // This may not be its first round.
      for (const TemplateTag& other : tags_) {
        if (other.kind == TemplateTag::Kind::close && other.open == index) {
          before |= before_word(other.begin, deepest - 1);
        }
      }
    }
    return before;
  }

  /// The index of the tag that ends there; tags_.size(): none.
  std::size_t tag_before(std::size_t i) const {
    const auto found = std::find_if(tags_.begin(), tags_.end(),
                                    [&](const TemplateTag& tag) { return tag.end == i; });
    return static_cast<std::size_t>(found - tags_.begin());
  }

  std::string complaint(TemplateTag&) override {
    return place_.comment    ? "is in a comment, which a newline in the value would end"
           : place_.quote    ? "is inside quotes; remove them, dtrain adds its own"
           : place_.brackets ? "is inside $(( )), where the shell would compute the value"
           : here_document_  ? "is after a here-document, where quotes have no effect"
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
    return place_.quote != '\0' ? "is inside a string; remove the quotes, dtrain adds its own" : "";
  }
};

} // namespace

void check_sh_tags(const TemplateSource& source, std::vector<TemplateTag>& tags) {
  ShWalker(source, tags).walk();
}

void check_json_tags(const TemplateSource& source, std::vector<TemplateTag>& tags) {
  JsonWalker(source, tags).walk();
}

} // namespace dtrain
