// Columns of text: two spaces between them, headers in Arena's words.
#pragma once

#include "cli/output/stream.h"

#include <string>
#include <string_view>
#include <vector>

namespace dtrain {

struct Cell {
  std::string text;
  Style style = Style::plain;
};

class Table {
 public:
  explicit Table(std::vector<std::string> headers) : headers_(std::move(headers)) {}

  void add(std::vector<Cell> row) { rows_.push_back(std::move(row)); }

  /// Leaves the last column out where the terminal is too narrow for it.
  void fit(const Terminal& terminal);

  /// Every line begins with `indent`; `underlined` puts dashes below the headers.
  void print(Stream& out, std::string_view indent = "", bool underlined = false) const;

 private:
  std::vector<std::size_t> widths() const; ///< Width of each column.

  std::vector<std::string> headers_;
  std::vector<std::vector<Cell>> rows_;
};

} // namespace dtrain
