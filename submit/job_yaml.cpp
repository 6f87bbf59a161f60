// Job files. yaml-cpp builds the tree; what keys and types mean is decided here, by the table of
// job_fields.h, so that every message has a line and a column.
//
// Hostile files: the size is bounded, yaml-cpp bounds the depth, and an alias is a reference that
// is never expanded: the reader descends two levels and refuses anything deeper.
#include "submit/errors.h"
#include "submit/fields/arena.h"
#include "submit/fields/job_fields.h"
#include "submit/job_spec.h"
#include "submit/options/duration.h"
#include "submit/options/nearest.h"
#include "submit/template/quote.h"
#include "submit/text/base64.h"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <charconv>
#include <climits>
#include <optional>
#include <set>
#include <sstream>

namespace dtrain {
namespace {

constexpr std::size_t k_max_file = 4U << 20U; ///< Bytes.
/// Names of the engines' own flags in 0.1.
constexpr const char* k_engine_options = "engineOptions";
constexpr const char* k_binary_tag = "tag:yaml.org,2002:binary";

bool is_quoted(const YAML::Node& node) { return node.Tag() == "!"; }

/// Notes where a document begins.
struct DocumentStart : YAML::EventHandler {
  YAML::Mark mark;

  void OnDocumentStart(const YAML::Mark& at) override { mark = at; }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t,
                const std::string&) override {}
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {}
  void OnMapEnd() override {}
};

/// Reads one file, and names it in every message.
class Reader {
 public:
  explicit Reader(const std::string& origin) : origin_(printable(origin)) {}

  [[noreturn]] void fail(const YAML::Mark& mark, const std::string& message) const {
    if (mark.is_null()) {
      throw UsageError(fmt::format("{}: {}", origin_, message));
    }
    throw UsageError(fmt::format("{}:{}:{}: {}", origin_, mark.line + 1, mark.column + 1, message));
  }

  JobSpec read(const std::string& text, JobSpec job) const {
    check_bytes(text);
    YAML::Node root;
    try {
      // yaml-cpp takes the file's end for a quote's; a document's end inside quotes it refuses.
      const std::string closed = text + (text.ends_with('\n') ? "...\n" : "\n...\n");
      check_one_document(closed);
      root = YAML::Load(closed);
    } catch (const YAML::Exception& error) {
      fail(error.mark, printable(error.msg));
    }
    if (root.IsNull()) {
      throw UsageError(fmt::format("{}: is empty; 'dtrain submit --dry-run -o yaml' writes a job "
                                   "to start from",
                                   origin_));
    }
    if (!root.IsMap()) {
      fail(root.Mark(), "a job is a map of keys and values, as in 'workers: 3'");
    }
    std::set<std::string> seen;
    for (const auto& entry : root) {
      const std::string key = text_of(entry.first, "a key");
      if (key == k_engine_options) {
        read_engine_options(entry.second, job);
        continue;
      }
      if (is_idle_key(key)) {
        continue;
      }
      const JobField& field = field_of(entry.first, key);
      if (!seen.insert(key).second) {
        fail(entry.first.Mark(), fmt::format("'{}' is given twice", key));
      }
      read_field(field, entry.second, job);
    }
    return job;
  }

 private:
  void check_bytes(const std::string& text) const {
    if (text.size() > k_max_file) {
      throw UsageError(fmt::format("{}: is {} bytes long; a job file has at most {}", origin_,
                                   text.size(), k_max_file));
    }
    std::size_t line = 1;
    for (std::size_t begin = 0; begin < text.size(); ++line) {
      const std::size_t end = std::min(text.find('\n', begin), text.size());
      const std::string_view row = std::string_view(text).substr(begin, end - begin);
      if (!is_utf8(row) || row.find('\0') != std::string_view::npos) {
        throw UsageError(fmt::format(
            "{}:{}: has bytes that are not UTF-8 text; write such a value as !!binary \"BASE64\"",
            origin_, line));
      }
      begin = end + 1;
    }
  }

  /// YAML::LoadAll would say how many there are, but never returns for text such as ",a".
  void check_one_document(const std::string& text) const {
    std::istringstream stream(text);
    YAML::Parser parser(stream);
    DocumentStart start;
    parser.HandleNextDocument(start);
    if (parser.HandleNextDocument(start)) {
      fail(start.mark, "a job file must be one YAML document, and a second one begins here");
    }
  }

  void read_engine_options(const YAML::Node& node, JobSpec& job) const {
    if (!node.IsSequence()) {
      fail(node.Mark(), fmt::format("{} must be a list", k_engine_options));
    }
    for (const auto& item : node) {
      const std::string text = text_of(item, k_engine_options);
      const std::size_t equals = std::min(text.find('='), text.size());
      const auto field =
          std::find_if(engine_fields().begin(), engine_fields().end(), [&](const JobField& each) {
            return each.long_flag() == "--" + text.substr(0, equals);
          });
      if (field == engine_fields().end()) {
        fail(item.Mark(),
             fmt::format("{}: no backend has --{}", k_engine_options, printable(text)));
      }
      const std::string value = text.substr(std::min(equals + 1, text.size()));
      if (const auto* list = std::get_if<Member<std::vector<std::string>>>(&field->member)) {
        (*list)(job).push_back(value);
      } else if (const auto* one = std::get_if<Member<std::string>>(&field->member)) {
        (*one)(job) = value;
      }
    }
  }

  const JobField& field_of(const YAML::Node& node, const std::string& key) const {
    std::vector<std::string> known;
    for (const JobField& field : job_fields()) {
      if (field.key == key) {
        return field;
      }
      known.emplace_back(field.key);
    }
    const auto near = nearest(key, known);
    fail(node.Mark(), fmt::format("unknown key '{}'{}", printable(key),
                                  near ? fmt::format(": did you mean {}?", *near)
                                       : std::string(": see dtrain-submit(1) for the keys")));
  }

  void read_field(const JobField& field, const YAML::Node& node, JobSpec& job) const {
    std::visit(
        [&](auto member) {
          auto& target = member(job);
          using Value = std::remove_reference_t<decltype(target)>;
          if constexpr (std::is_same_v<Value, bool>) {
            target = bool_of(node, field.key);
          } else if constexpr (std::is_same_v<Value, int>) {
            target = field.duration ? duration_of(node, field) : number_of(node, field);
          } else if constexpr (std::is_same_v<Value, std::string>) {
            target = text_of(node, field.key);
          } else {
            target = list_of(node, field);
          }
        },
        field.member);
  }

  /// A scalar's text as it stands in the file: 1e-3 is "1e-3". Bytes for !!binary.
  std::string text_of(const YAML::Node& node, std::string_view what) const {
    if (node.IsNull()) {
      fail(node.Mark(), fmt::format("{} has no value; write '' for empty text", what));
    }
    if (!node.IsScalar()) {
      fail(node.Mark(), fmt::format("{} must be text, not a {}", what, kind_of(node)));
    }
    if (node.Tag() != k_binary_tag) {
      return node.Scalar();
    }
    // Not yaml-cpp's function, which indexes its table out of bounds for bytes beyond ASCII.
    std::optional<std::string> bytes = base64_decode(node.Scalar());
    if (!bytes) {
      fail(node.Mark(), fmt::format("{} is tagged !!binary but is not base64", what));
    }
    return *std::move(bytes);
  }

  static std::string_view kind_of(const YAML::Node& node) {
    return node.IsMap() ? "map" : node.IsSequence() ? "list" : "scalar";
  }

  bool bool_of(const YAML::Node& node, std::string_view what) const {
    const std::string text = node.IsScalar() && !is_quoted(node) ? node.Scalar() : "";
    if (text != "true" && text != "false") {
      fail(node.Mark(), fmt::format("{} must be true or false", what));
    }
    return text == "true";
  }

  int number_of(const YAML::Node& node, const JobField& field) const {
    int number = 0;
    const std::string text = node.IsScalar() && !is_quoted(node) ? node.Scalar() : "";
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, number);
    const bool too_long = error == std::errc::result_out_of_range && stop == end;
    if (!too_long && (error != std::errc() || stop != end || text.empty())) {
      fail(node.Mark(), fmt::format("{} must be a whole number", field.key));
    }
    if (too_long || number < field.minimum || number > field.maximum) {
      fail(node.Mark(), fmt::format("{} must be between {} and {}, not {}", field.key,
                                    field.minimum, field.maximum, printable(text)));
    }
    return number;
  }

  int duration_of(const YAML::Node& node, const JobField& field) const {
    const auto duration = node.IsScalar() ? parse_duration(node.Scalar()) : std::nullopt;
    if (!duration || duration->count() < field.minimum || duration->count() > field.maximum) {
      fail(node.Mark(),
           fmt::format("{} must be a duration such as 10s, between {} and {}", field.key,
                       format_duration(std::chrono::milliseconds(field.minimum)),
                       format_duration(std::chrono::milliseconds(field.maximum))));
    }
    return static_cast<int>(duration->count());
  }

  std::vector<std::string> list_of(const YAML::Node& node, const JobField& field) const {
    const bool is_env = field.member == member(&JobSpec::env);
    std::vector<std::string> list;
    if (is_env && node.IsMap()) {
      std::set<std::string> seen;
      for (const auto& entry : node) {
        const std::string key = text_of(entry.first, "the name of a variable");
        if (!seen.insert(key).second) {
          fail(entry.first.Mark(), fmt::format("env: '{}' is given twice", printable(key)));
        }
        list.push_back(key + "=" + text_of(entry.second, fmt::format("env: {}", printable(key))));
      }
      return list;
    }
    if (!node.IsSequence()) {
      fail(node.Mark(),
           is_env ? "env must be a list of KEY=VALUE or a map of KEY: VALUE"
                  : fmt::format("{} must be a list with one word per item: [python, train.py]",
                                field.key));
    }
    for (const auto& item : node) {
      list.push_back(text_of(item, fmt::format("item {} of {}", list.size() + 1, field.key)));
    }
    return list;
  }

  std::string origin_;
};

/// Writes text without quotes if every YAML parser reads it as text: it begins with a letter or
/// '/', contains nothing that has a meaning in YAML, and is not a YAML 1.1 word for true, false or
/// null.
std::string readable_yaml(const std::string& text) {
  constexpr std::string_view letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz/_";
  constexpr std::string_view others = "0123456789.-=+@%";
  static const std::set<std::string, std::less<>> words = {"true", "false", "yes", "no", "on",
                                                           "off",  "null",  "y",   "n"};
  std::string lower = text;
  std::transform(lower.begin(), lower.end(), lower.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  const bool plain = !text.empty() && letters.find(text[0]) != std::string_view::npos &&
                     std::all_of(text.begin(), text.end(), [&](char c) {
                       return letters.find(c) != std::string_view::npos ||
                              others.find(c) != std::string_view::npos;
                     });
  return plain && words.count(lower) == 0 ? text : quote_yaml(text);
}

} // namespace

JobSpec read_job_yaml(const std::string& text, const std::string& origin, JobSpec base) {
  const Reader reader(origin);
  try {
    return reader.read(text, std::move(base));
  } catch (const YAML::Exception& error) {
    reader.fail(error.mark, printable(error.msg));
  }
}

std::string write_job_yaml(const JobSpec& job) {
  const JobSpec defaults;
  std::string out;
  for (const JobField& field : job_fields()) {
    if (!is_in_job_file(job, field)) {
      continue;
    }
    std::visit(
        [&](auto member) {
          const auto& value = member(job);
          using Value = std::remove_cvref_t<decltype(value)>;
          if constexpr (std::is_same_v<Value, int>) {
            out += field.duration ? fmt::format("{}: {}\n", field.key,
                                                format_duration(std::chrono::milliseconds(value)))
                                  : fmt::format("{}: {}\n", field.key, value);
          } else if constexpr (std::is_same_v<Value, bool>) {
            out += fmt::format("{}: {}\n", field.key, value);
          } else if (value.empty() && member(defaults).empty()) {
            return;
          } else if constexpr (std::is_same_v<Value, std::string>) {
            out += fmt::format("{}: {}\n", field.key, readable_yaml(value));
          } else {
            out += fmt::format("{}:\n", field.key);
            for (const std::string& item : value) {
              out += fmt::format("  - {}\n", readable_yaml(item));
            }
          }
        },
        field.member);
  }
  return out;
}

} // namespace dtrain
