#include "cli/output/table.h"

#include <algorithm>
#include <numeric>

namespace dtrain {
namespace {

constexpr std::size_t k_gap = 2;

/// Columns a terminal gives `text`, taking every code point for one column wide.
std::size_t columns(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char byte) {
    return (static_cast<unsigned char>(byte) & 0xC0U) != 0x80U;
  }));
}

} // namespace

std::vector<std::size_t> Table::widths() const {
  std::vector<std::size_t> widths;
  widths.reserve(headers_.size());
  for (const auto& header : headers_) {
    widths.push_back(columns(header));
  }
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], columns(row[i].text));
    }
  }
  return widths;
}

void Table::fit(const Terminal& terminal) {
  const std::vector<std::size_t> all = widths();
  const std::size_t width = std::accumulate(all.begin(), all.end(), k_gap * (all.size() - 1));
  if (terminal.is_terminal && width > static_cast<std::size_t>(std::max(terminal.width, 0))) {
    headers_.pop_back();
    for (auto& row : rows_) {
      row.pop_back();
    }
  }
}

void Table::print(Stream& out, std::string_view indent, bool underlined) const {
  const std::vector<std::size_t> widths = this->widths();
  std::string line;
  const auto begin = [&] { line = indent; };
  const auto append = [&](std::size_t column, std::string_view text, Style style) {
    line += styled(out.terminal(), style, text);
    if (column + 1 < headers_.size()) {
      line.append(widths[column] - columns(text) + k_gap, ' ');
    }
  };
  const auto end = [&] {
    line.erase(line.find_last_not_of(' ') + 1);
    line += '\n';
    out.write(line);
  };

  begin();
  for (std::size_t i = 0; i < headers_.size(); ++i) {
    append(i, headers_[i], Style::plain);
  }
  end();
  if (underlined) {
    begin();
    for (std::size_t i = 0; i < headers_.size(); ++i) {
      append(i, std::string(columns(headers_[i]), '-'), Style::plain);
    }
    end();
  }
  for (const auto& row : rows_) {
    begin();
    for (std::size_t i = 0; i < row.size(); ++i) {
      append(i, row[i].text, row[i].style);
    }
    end();
  }
}

} // namespace dtrain
