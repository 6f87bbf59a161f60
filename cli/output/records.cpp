#include "cli/output/records.h"

#include "cli/output/output_option.h"
#include "cli/output/table.h"
#include "submit/errors.h"

#include <algorithm>
#include <cctype>

namespace dtrain {

void print_records(Stream& out, const std::vector<std::string>& keys,
                   const std::vector<Record>& records, const std::string& output) {
  if (const auto format = data_format(output)) {
    out.write(records_data(records, *format));
    return;
  }
  std::vector<std::string> headers = keys;
  for (std::string& header : headers) {
    std::transform(header.begin(), header.end(), header.begin(),
                   [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  }
  Table table(headers);
  for (const Record& record : records) {
    std::vector<Cell> row;
    for (const std::string& key : keys) {
      const auto found = std::find_if(record.begin(), record.end(),
                                      [&](const auto& field) { return field.first == key; });
      row.push_back({found == record.end() ? "" : printable(found->second)});
    }
    table.add(std::move(row));
  }
  table.print(out);
}

} // namespace dtrain
