#include "backends/slurm/sbatch_template.h"

#include "submit/errors.h"
#include "submit/template/quote.h"
#include "submit/text/lower_case.h"

#include <fmt/format.h>

#include <algorithm>

namespace dtrain::slurm {
namespace {

constexpr std::string_view k_magic = "#SBATCH";
constexpr std::string_view k_plain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                     "0123456789_-./,+@%=:";

/// Where a tag stands, for TemplateTag::place.
enum Place { in_script, in_option };

/// Anywhere in a line these words begin another component of a heterogeneous job, even within
/// quotes; a word split by a backslash is not found.
std::size_t end_of_first_half(std::string_view text, std::size_t begin) {
  constexpr std::string_view k_word = "job";
  const std::string rest = lower_case(text.substr(begin, k_word.size() + 4));
  for (const std::string_view first : {"het", "pack"}) {
    if (rest.starts_with(first) && rest.substr(first.size()).starts_with(k_word)) {
      return begin + first.size();
    }
  }
  return std::string_view::npos;
}

struct Line {
  std::size_t begin;
  std::size_t end; ///< Offset of its newline, or of the end of the text.
};

/// The lines before the first command. Lines with only the tags of sections do not count.
std::vector<Line> option_lines(std::string_view text, const std::vector<TemplateTag>& tags) {
  std::vector<Line> lines;
  auto tag = tags.begin();
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string rest;
    for (std::size_t i = begin; i < end; ++i) {
      while (tag != tags.end() && tag->end <= i) {
        ++tag;
      }
      const bool is_shown =
          tag == tags.end() || i < tag->begin || tag->kind == TemplateTag::Kind::variable;
      rest += is_shown ? std::string(1, text[i]) : "";
    }
    const std::size_t first = rest.find_first_not_of(" \t\r\f\v");
    if (first != std::string::npos && rest[first] != '#') {
      break;
    }
    if (text.substr(begin).starts_with(k_magic)) {
      lines.push_back({begin, end});
    }
    begin = end + 1;
  }
  return lines;
}

/// Why the tag must not stand there; empty: it may.
std::string complaint(std::string_view text, const Line& line, const TemplateTag& tag) {
  if (tag.kind != TemplateTag::Kind::variable) {
    return "is in an #SBATCH line; sections and comments need lines of their own";
  }
  char quote = '\0';
  for (std::size_t i = line.begin + k_magic.size(); i < tag.begin; ++i) {
    const char c = text[i];
    if (c == '\\') {
      ++i;
    } else if (quote != '\0') {
      quote = c == quote ? '\0' : quote;
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (c == '#') {
      return "is in a comment";
    }
  }
  const char after = tag.end < text.size() ? text[tag.end] : '\n';
  const bool ends = after == ' ' || after == '\t' || after == '\n';
  const bool is_value = text[tag.begin - 1] == '=' && text[tag.begin - 2] != '\\';
  const bool is_line = tag.begin == line.begin + k_magic.size() + 1 && after == '\n';
  return quote == '\0' && ((is_value && ends) || is_line)
             ? ""
             : "must be the whole value of an option, without quotes ('#SBATCH --option={{x}}'), "
               "or the whole line";
}

void check_sbatch_tags(const TemplateSource& source, std::vector<TemplateTag>& tags) {
  const std::string_view text = source.text;
  const auto lines = option_lines(text, tags);
  auto script = tags; // For sh, tags in the options do not count.
  for (std::size_t i = 0; i < tags.size(); ++i) {
    const auto line = std::find_if(lines.begin(), lines.end(), [&](const Line& each) {
      return each.begin <= tags[i].begin && tags[i].begin < each.end;
    });
    if (line == lines.end()) {
      continue;
    }
    if (const auto why = complaint(text, *line, tags[i]); !why.empty()) {
      throw UsageError(fmt::format("{}: {} {}", source.where(tags[i].line), tags[i].text(), why));
    }
    tags[i].place = in_option;
    script[i].kind = TemplateTag::Kind::comment;
  }
  check_sh_tags(source, script);
}

std::string quote(const TemplateTag& tag, std::string_view text) {
  return tag.place == in_option ? quote_sbatch(text) : quote_sh(text);
}

} // namespace

std::string quote_sbatch(std::string_view text) {
  if (text.find_first_of(std::string_view("\n\0", 2)) != std::string_view::npos) {
    throw UsageError(fmt::format(
        "'{}' has a newline or a NUL byte, which an option of a batch script cannot hold",
        printable(text)));
  }
  const bool is_plain = !text.empty() && text.find_first_not_of(k_plain) == std::string_view::npos;
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"' || text[i] == '\\') {
      out += '\\';
    }
    out += text[i];
    for (std::size_t begin = i >= 3 ? i - 3 : 0; begin <= i; ++begin) {
      if (end_of_first_half(text, begin) == i + 1) {
        out += '\\';
        break;
      }
    }
  }
  return is_plain ? out : "\"" + out + "\"";
}

const TemplateKind k_sbatch_kind = {".sbatch", quote, check_sbatch_tags};

} // namespace dtrain::slurm
