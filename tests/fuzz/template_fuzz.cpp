// A template and a value, both of any bytes: no value changes the structure of what a template
// renders to. The first byte picks the kind, a zero byte ends the template.
//
// YAML and JSON: the tree with the value must be the tree with a plain word, but for the scalars
// that hold it. sh and sbatch: the words, read by small splitters of our own, must be as many and
// the same. The value comes as a job's own and as a user's --set, which may make a number of it.
#include "backends/slurm/sbatch_template.h"
#include "submit/errors.h"
#include "submit/template/quote.h"
#include "submit/template/render.h"
#include "submit/template/templates.h"
#include "submit/text/base64.h"

#include <nlohmann/json.hpp>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace {

using nlohmann::json;
using Shape = std::vector<std::string>;

constexpr std::string_view k_plain = "PLAIN";

json data_of(const json& value) {
  return {{"x", value}, {"yes", true}, {"no", false}, {"n", 3}, {"list", {value, value}}};
}

std::optional<std::string> render(const char* name, std::string_view text, const json& value) {
  try {
    return dtrain::render_template(name, text, data_of(value), {dtrain::slurm::k_sbatch_kind});
  } catch (const dtrain::UsageError&) {
    return std::nullopt;
  }
}

/// The value as text: what a scalar or word that holds it reads as.
std::string text_of(const json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

/// The documents' events, a line each; "VALUE" where a scalar is the value.
class ShapeBuilder : public YAML::EventHandler {
 public:
  explicit ShapeBuilder(const std::string& value) : value_(value) {}

  Shape shape;

  void OnDocumentStart(const YAML::Mark&) override { shape.emplace_back("document"); }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override { shape.emplace_back("null"); }
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override { shape.emplace_back("alias"); }
  void OnScalar(const YAML::Mark&, const std::string& tag, YAML::anchor_t,
                const std::string& text) override {
    std::string bytes = text;
    if (tag == "tag:yaml.org,2002:binary") {
      bytes = dtrain::base64_decode(text).value_or(text);
    }
    shape.push_back(bytes == value_ ? "VALUE" : "scalar " + bytes);
  }
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {
    shape.emplace_back("list");
  }
  void OnSequenceEnd() override { shape.emplace_back("end"); }
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {
    shape.emplace_back("map");
  }
  void OnMapEnd() override { shape.emplace_back("end"); }

 private:
  std::string value_;
};

std::optional<Shape> yaml_shape(const std::string& text, const std::string& value) {
  constexpr int k_documents = 8; // yaml-cpp finds documents without end in text such as ",a"
  try {
    std::istringstream stream(text);
    YAML::Parser parser(stream);
    ShapeBuilder builder(value);
    for (int i = 0; i < k_documents && parser.HandleNextDocument(builder); ++i) {
    }
    return builder.shape;
  } catch (const YAML::Exception&) {
    return std::nullopt;
  }
}

/// The words of a script as sh reads them, the operators and newlines between them included;
/// std::nullopt for scripts with what it does not know (expansions, here-documents).
std::optional<Shape> sh_shape(std::string_view text, const std::string& value) {
  if (text.find_first_of("$`") != std::string_view::npos ||
      text.find("<<") != std::string_view::npos) {
    return std::nullopt;
  }
  Shape shape;
  std::string word;
  bool in_word = false;
  const auto end_word = [&] {
    if (in_word) {
      for (std::size_t at = word.find(value); !value.empty() && at != std::string::npos;
           at = word.find(value, at)) {
        word.replace(at, value.size(), "\1VALUE\1");
        at += 7;
      }
      shape.push_back("word " + word);
    }
    word.clear();
    in_word = false;
  };
  char quote = '\0';
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quote != '\0') {
      if (c == quote) {
        quote = '\0';
      } else if (c == '\\' && quote == '"' && i + 1 < text.size()) {
        word += text[++i];
      } else {
        word += c;
      }
    } else if (c == '\'' || c == '"') {
      quote = c;
      in_word = true;
    } else if (c == '\\' && i + 1 < text.size()) {
      word += text[++i];
      in_word = true;
    } else if (c == '#' && !in_word) {
      while (i + 1 < text.size() && text[i + 1] != '\n') {
        ++i;
      }
    } else if (std::string_view(" \t\n;&|<>()").find(c) != std::string_view::npos) {
      end_word();
      if (c != ' ' && c != '\t') {
        shape.push_back(std::string("operator ") + c);
      }
    } else {
      word += c;
      in_word = true;
    }
  }
  if (quote != '\0') {
    return std::nullopt;
  }
  end_word();
  return shape;
}

void check_yaml(std::string_view text, const json& given) {
  const std::string value = text_of(given);
  const auto plain = render("fuzz.yaml", text, std::string(k_plain));
  const auto hostile = render("fuzz.yaml", text, given);
  if (plain.has_value() != hostile.has_value()) {
    std::abort();
  }
  if (!plain) {
    return;
  }
  const auto expected = yaml_shape(*plain, std::string(k_plain));
  if (expected && yaml_shape(*hostile, value) != expected) {
    std::abort();
  }
}

void check_sh(std::string_view text, const json& given) {
  const std::string value = text_of(given);
  const auto plain = render("fuzz.sh", text, std::string(k_plain));
  const auto hostile = render("fuzz.sh", text, given);
  if (!plain || !hostile) {
    return; // a value with a NUL byte is refused
  }
  const bool has_expansion = text.find_first_of("$`") != std::string_view::npos;
  const auto expected = sh_shape(*plain, std::string(k_plain));
  // A value's own $ and ` are inside quotes, where the splitter need not look at them.
  if (expected && !has_expansion && value.find_first_of("$`") == std::string::npos &&
      value.find("<<") == std::string::npos && sh_shape(*hostile, value) != expected) {
    std::abort();
  }
}

void check_json(std::string_view text, const json& given) {
  const std::string value = text_of(given);
  if (!dtrain::is_utf8(value)) {
    return;
  }
  const auto plain = render("fuzz.json", text, std::string(k_plain));
  const auto hostile = render("fuzz.json", text, given);
  if (plain.has_value() != hostile.has_value()) {
    std::abort();
  }
  if (plain && json::accept(*plain) != json::accept(*hostile)) {
    std::abort();
  }
}

/// The options that sbatch finds, up to the first line that is no comment; std::nullopt where it
/// would refuse the script.
std::optional<Shape> sbatch_shape(std::string_view text, const std::string& value) {
  Shape shape;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const std::size_t first = line.find_first_not_of(" \t\r\f\v");
    if (first != std::string_view::npos && line[first] != '#') {
      break;
    }
    if (!line.starts_with("#SBATCH")) {
      continue;
    }
    std::string word;
    char quote = '\0';
    for (std::size_t i = 7; i <= line.size(); ++i) {
      const char c = i < line.size() ? line[i] : '\0';
      if (c == '\\' && i + 1 < line.size()) {
        word += line[++i];
      } else if (quote != '\0' && c == quote) {
        quote = '\0';
      } else if (quote != '\0') {
        word += c;
      } else if (c == '"' || c == '\'') {
        quote = c;
      } else if (c == '#' || c == '\0' ||
                 std::string_view(" \t\r\f\v").find(c) != std::string_view::npos) {
        if (!word.empty()) {
          const std::size_t at = word.find(value);
          shape.push_back(at == std::string::npos
                              ? word
                              : word.substr(0, at) + "\1VALUE\1" + word.substr(at + value.size()));
        }
        word.clear();
        if (c == '#') {
          break;
        }
      } else {
        word += c;
      }
    }
    if (quote != '\0') {
      return std::nullopt;
    }
  }
  return shape;
}

void check_sbatch(std::string_view text, const json& given) {
  const auto plain = render("fuzz.sbatch", text, std::string(k_plain));
  const auto hostile = render("fuzz.sbatch", text, given);
  if (!plain || !hostile) {
    return; // a value with a newline is refused in an option
  }
  const auto expected = sbatch_shape(*plain, std::string(k_plain));
  if (expected && sbatch_shape(*hostile, text_of(given)) != expected) {
    std::abort();
  }
}

void check(char kind, std::string_view text, const json& given) {
  switch (kind % 4) {
  case 0:
    return check_yaml(text, given);
  case 1:
    return check_sh(text, given);
  case 2:
    return check_json(text, given);
  default:
    return check_sbatch(text, given);
  }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::size_t k_longest = 4096;
  if (size < 2 || size > k_longest) {
    return 0;
  }
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  const std::size_t split = all.find('\0', 1);
  const std::string_view text = all.substr(1, split == std::string_view::npos ? split : split - 1);
  const std::string value(split == std::string_view::npos ? "a: 'b\"\n- c #"
                                                          : all.substr(split + 1));
  // The comparison needs to tell the value from the template's own words.
  if (value.size() < 3 || text.find(value) != std::string_view::npos ||
      text.find(k_plain) != std::string_view::npos || value.find(k_plain) != std::string::npos) {
    return 0;
  }
  const json set = dtrain::template_values({"x=" + value}).at("x");
  const bool is_told_apart = text_of(set).size() >= 3 && !text.empty() &&
                             text.find(text_of(set)) == std::string_view::npos;
  check(all[0], text, value);
  if (is_told_apart && !set.is_boolean()) {
    check(all[0], text, set);
  }
  return 0;
}
