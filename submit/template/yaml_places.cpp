#include "submit/template/yaml_places.h"

#include "submit/errors.h"
#include "submit/template/quote.h"
#include "submit/text/base64.h"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <charconv>
#include <sstream>

namespace dtrain {
namespace {

constexpr std::size_t k_mark_digits = 8;
constexpr int k_most_documents = 64; ///< yaml-cpp finds documents without end in some texts.
constexpr const char* k_binary = "tag:yaml.org,2002:binary";
constexpr const char* k_not_whole =
    "must be a whole YAML value without quotes, as in 'key: {{x}}' or '- {{x}}'";

std::string_view yaml_line(std::string_view text, int number) {
  std::size_t begin = 0;
  for (int i = 0; i < number && begin < text.size(); ++i) {
    begin = std::min(text.find('\n', begin), text.size() - 1) + 1;
  }
  return text.substr(begin, text.find('\n', begin) - begin);
}

/// How the parser reads the text: where each mark is a scalar, and under which key or dash.
class MarkReader : public YAML::EventHandler {
 public:
  struct Scalar {
    bool found = false;
    bool may_be_block = false;
    bool in_list = false;
    std::size_t key_column = 0; ///< Place of its key, unless it is in a list.
  };

  MarkReader(const YamlMarks& marks, std::size_t count) : scalars(count), marks_(marks) {}

  std::vector<Scalar> scalars;

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override { node_ends(false); }
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override { node_ends(false); }
  void OnSequenceStart(const YAML::Mark&, const std::string& tag, YAML::anchor_t,
                       YAML::EmitterStyle::value style) override {
    enter(false, tag, style);
  }
  void OnMapStart(const YAML::Mark&, const std::string& tag, YAML::anchor_t,
                  YAML::EmitterStyle::value style) override {
    enter(true, tag, style);
  }
  void OnSequenceEnd() override { leave(); }
  void OnMapEnd() override { leave(); }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& text) override {
    refuse_in(tag);
    if (marks_.are_in(text)) {
      find(text, tag, anchor);
    }
    if (!parents_.empty() && parents_.back().at_key) {
      parents_.back().key_column = static_cast<std::size_t>(std::max(mark.column, 0));
    }
    node_ends(true);
  }

 private:
  struct Parent {
    bool is_map;
    bool is_block;
    bool at_key = is_map;
    bool key_is_scalar = false;
    std::size_t key_column = 0;
  };

  void find(const std::string& text, const std::string& tag, YAML::anchor_t anchor) {
    const std::size_t index = marks_.first_in(text);
    if (index >= scalars.size() || anchor != 0 || tag != wanted_tag() ||
        text != marks_.read(index)) {
      throw YamlFault(index, k_not_whole);
    }
    Scalar& scalar = scalars[index];
    scalar.found = true;
    if (!parents_.empty() && parents_.back().is_block) {
      scalar.in_list = !parents_.back().is_map;
      scalar.may_be_block = scalar.in_list || parents_.back().key_is_scalar;
      scalar.key_column = parents_.back().key_column;
    }
  }

  const char* wanted_tag() const {
    switch (marks_.form()) {
    case YamlMarks::Form::quoted:
      return "!";
    case YamlMarks::Form::bare:
      return "?";
    case YamlMarks::Form::binary:
      return k_binary;
    }
    return "";
  }

  void refuse_in(const std::string& tag) const {
    if (marks_.are_in(tag)) {
      throw YamlFault(marks_.first_in(tag), k_not_whole);
    }
  }

  void enter(bool is_map, const std::string& tag, YAML::EmitterStyle::value style) {
    refuse_in(tag);
    parents_.push_back({.is_map = is_map, .is_block = style == YAML::EmitterStyle::Block});
  }

  void leave() {
    parents_.pop_back();
    node_ends(false);
  }

  void node_ends(bool is_scalar) {
    if (!parents_.empty() && parents_.back().is_map) {
      Parent& map = parents_.back();
      map.key_is_scalar = map.at_key && is_scalar;
      map.at_key = !map.at_key;
    }
  }

  const YamlMarks& marks_;
  std::vector<Parent> parents_;
};

bool is_in_comment(std::string_view text, std::size_t at) {
  const std::size_t begin = text.rfind('\n', at) + 1; // npos + 1 is 0.
  for (std::size_t i = begin; i < at; ++i) {
    if (text[i] == '#' && (i == begin || text[i - 1] == ' ' || text[i - 1] == '\t')) {
      return true;
    }
  }
  return false;
}

/// The indentation of a literal at `at`, which ends before `end`: it must be the last on its line,
/// after its key's colon or its dash, and no comment below it may be indented so deep that it would
/// become part of it.
std::size_t literal_indent(std::string_view text, const MarkReader::Scalar& scalar, std::size_t at,
                           std::size_t end) {
  constexpr std::size_t k_deeper = 2;
  const std::size_t begin = text.rfind('\n', at) + 1;
  const std::size_t before = text.find_last_not_of(' ', at - 1);
  if (!scalar.may_be_block || at == begin || before == std::string_view::npos || before < begin ||
      text[before] != (scalar.in_list ? '-' : ':') || text.substr(end, 1) != "\n") {
    return 0;
  }
  const std::size_t indent = (scalar.in_list ? before - begin : scalar.key_column) + k_deeper;
  for (std::size_t line = end + 1; line < text.size();) {
    const std::size_t line_end = std::min(text.find('\n', line), text.size());
    const std::size_t first = text.find_first_not_of(" \t\r", line);
    if (first < line_end) {
      return text[first] == '#' && first - line >= indent ? 0 : indent;
    }
    line = line_end + 1;
  }
  return indent;
}

} // namespace

YamlMarks::YamlMarks(std::string_view text, Form form) : prefix_("zq"), form_(form) {
  while (are_in(text)) {
    prefix_ += 'q';
  }
}

std::string YamlMarks::core(std::size_t index) const {
  return fmt::format("{}{:0{}}", prefix_, index, k_mark_digits);
}

std::string YamlMarks::read(std::size_t index) const {
  return form_ == Form::quoted ? fmt::format("{0}: - #[b], {{c}} &d *e !f |>'\" {0}", core(index))
                               : core(index);
}

std::string YamlMarks::written(std::size_t index) const {
  switch (form_) {
  case Form::quoted:
    return quote_yaml(read(index));
  case Form::bare:
    return read(index);
  case Form::binary:
    return fmt::format("!!binary \"{}\"", read(index)); // Which need be no base64.
  }
  return {};
}

std::size_t YamlMarks::first_in(std::string_view text) const {
  const std::size_t at = text.find(prefix_) + prefix_.size();
  const std::string_view digits = text.substr(std::min(at, text.size()), k_mark_digits);
  std::size_t index = YamlFault::k_none;
  std::from_chars(digits.data(), digits.data() + digits.size(), index);
  return index;
}

std::vector<std::size_t> yaml_places(const std::string& text, const YamlMarks& marks,
                                     std::size_t count) {
  MarkReader reader(marks, count);
  try {
    // Otherwise it takes a quote without an end for one with an end.
    std::istringstream stream(text + "\n---\n");
    YAML::Parser parser(stream);
    int documents = 0;
    while (parser.HandleNextDocument(reader)) {
      if (++documents > k_most_documents + 1) { // The last is that of our own dashes.
        throw YamlFault(
            YamlFault::k_none,
            fmt::format("renders to invalid YAML, or to more than {} documents", k_most_documents));
      }
    }
  } catch (const YAML::Exception& error) {
    const auto line = yaml_line(text, error.mark.line);
    if (marks.are_in(line)) {
      throw YamlFault(marks.first_in(line), k_not_whole);
    }
    throw YamlFault(YamlFault::k_none, no_yaml(text, error.mark.line, error.msg));
  }
  std::vector<std::size_t> indents;
  indents.reserve(count);
  std::size_t at = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::string mark = marks.written(i);
    at = text.find(mark, at);
    const MarkReader::Scalar& scalar = reader.scalars[i];
    if (!scalar.found && (at == std::string::npos || !is_in_comment(text, at))) {
      throw YamlFault(i, k_not_whole);
    }
    indents.push_back(scalar.found ? literal_indent(text, scalar, at, at + mark.size()) : 0);
    at += mark.size();
  }
  return indents;
}

std::string no_yaml(const std::string& text, int line, const std::string& why) {
  return fmt::format("renders to invalid YAML: {} at '{}'", printable(why),
                     printable(yaml_line(text, std::max(line, 0))));
}

} // namespace dtrain
