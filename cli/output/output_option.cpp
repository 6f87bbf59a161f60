#include "cli/output/output_option.h"

namespace dtrain {

Option output_option(std::string& output, std::vector<std::string> formats) {
  return {.flags = "-o,--output",
          .target = &output,
          .metavar = "FORMAT",
          .help = "Output format",
          .group = "Output",
          .complete = Complete::choices,
          .choices = std::move(formats)};
}

std::optional<DataFormat> data_format(const std::string& output) {
  if (output == "json") {
    return DataFormat::json;
  }
  if (output == "yaml") {
    return DataFormat::yaml;
  }
  return std::nullopt;
}

} // namespace dtrain
