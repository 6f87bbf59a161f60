#include "trainer/checkpoint/inspect.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "submit/errors.h"
#include "trainer/checkpoint/checkpoint_file.h"
#include "trainer/checkpoint/numbered_files.h"
#include "trainer/errors.h"
#include "trainer/monitor/console.h"

namespace trainer {
namespace {

/// "adam.m" of adam.m.hidden.bias, where there is a tensor hidden.bias too; else empty.
std::string moment_of(const NamedTensor& tensor, const std::vector<NamedTensor>& all) {
  for (const NamedTensor& other : all) {
    if (tensor.name.ends_with("." + other.name)) {
      return tensor.name.substr(0, tensor.name.size() - other.name.size() - 1);
    }
  }
  return "";
}

struct Statistics {
  double mean = 0;
  double rms = 0;
  double largest = 0;
};

Statistics statistics_of(const std::vector<float>& values) {
  Statistics found;
  for (const float value : values) {
    found.mean += double{value};
    found.rms += double{value} * double{value};
    if (!(std::abs(value) <= found.largest)) { // NaN is the largest of all, and stays.
      found.largest = std::isnan(found.largest) ? found.largest : std::abs(value);
    }
  }
  const double count = std::max<double>(1, static_cast<double>(values.size()));
  found.mean /= count;
  found.rms = std::sqrt(found.rms / count);
  return found;
}

void print_tensors(const std::vector<NamedTensor>& tensors) {
  std::size_t width = 0;
  std::vector<std::string> moments;
  std::vector<const NamedTensor*> parameters;
  for (const NamedTensor& tensor : tensors) {
    const std::string moment = moment_of(tensor, tensors);
    if (moment.empty()) {
      parameters.push_back(&tensor);
      width = std::max(width, dtrain::printable(tensor.name).size());
    } else if (std::find(moments.begin(), moments.end(), moment) == moments.end()) {
      moments.push_back(moment);
    }
  }
  std::sort(moments.begin(), moments.end());
  fmt::print("  moments   {}\n",
             moments.empty() ? "none"
                             : dtrain::printable(fmt::format("{}", fmt::join(moments, ", "))));
  fmt::print("\n  {:<{}}  {:<12} {:>10} {:>11} {:>11} {:>11}\n", "TENSOR", width, "SHAPE", "VALUES",
             "MEAN", "RMS", "LARGEST");
  for (const NamedTensor* tensor : parameters) {
    const Statistics found = statistics_of(tensor->values);
    fmt::print("  {:<{}}  {:<12} {:>10} {:>11.4g} {:>11.4g} {:>11.4g}\n",
               dtrain::printable(tensor->name), width,
               fmt::format("{}", fmt::join(tensor->shape, "×")),
               with_commas(static_cast<double>(tensor->values.size())), found.mean, found.rms,
               found.largest);
  }
}

/// A number of the metadata, or the text found in its place.
std::string number(const SafeTensors& content, const char* key) {
  const auto found = content.metadata.find(key);
  if (found == content.metadata.end()) {
    return "?";
  }
  const std::string& text = found->second;
  const bool is_number = !text.empty() && std::all_of(text.begin(), text.end(),
                                                      [](char c) { return c >= '0' && c <= '9'; });
  return is_number && text.size() < 16 ? with_commas(std::stod(text)) : dtrain::printable(text);
}

} // namespace

dtrain::CommandTable inspect_command(std::string& folder) {
  dtrain::CommandTable table;
  table.name = "inspect";
  table.summary = "Show the checkpoints of a folder";
  table.description =
      "Prints each checkpoint in DIR, the newest first: whether it is whole (its files' lengths "
      "and "
      "digests are those of its manifest), the step, the samples that were taken, the seed, the "
      "optimizer's "
      "moments, and each parameter's shape, mean, root mean square and largest absolute value. It "
      "ends with an error where there is none that --resume could continue from.";
  table.examples = {"# What a run has saved", "dtrain-trainer inspect run1"};
  table.options = {{.flags = "DIR",
                    .target = &folder,
                    .help = "The --checkpoint-dir of a run",
                    .complete = dtrain::Complete::directory,
                    .required = true,
                    .positional = true}};
  return table;
}

void inspect_checkpoints(const std::string& folder) {
  const std::vector<NumberedFile> files = numbered_files(folder);
  if (files.empty()) {
    std::error_code error;
    throw DataError(fmt::format("{}: {}; give the --checkpoint-dir of a run", folder,
                                std::filesystem::is_directory(folder, error) ? "no checkpoint in it"
                                                                             : "no such folder"));
  }
  bool is_any_whole = false;
  for (const auto& [step, path] : files) {
    std::string wrong = what_is_wrong(path);
    SafeTensors content;
    try {
      if (wrong.empty()) {
        content = read_checkpoint(path);
      }
    } catch (const DataError& error) {
      wrong = error.what();
    }
    if (!wrong.empty()) {
      fmt::print("{}: {}\n", path, wrong);
      continue;
    }
    is_any_whole = true;
    const std::vector<std::string> parts = files_of(path);
    std::uintmax_t bytes = 0;
    for (const std::string& part : parts) {
      bytes += std::filesystem::file_size(part);
    }
    fmt::print("{}: whole, {} bytes{}\n", path, with_commas(static_cast<double>(bytes)),
               parts.front() == path ? "" : fmt::format(" in {} parts", parts.size()));
    fmt::print("  step      {}\n", number(content, "step"));
    fmt::print("  samples   {}, of {} an epoch and {} a step\n", number(content, "position"),
               number(content, "samples"), number(content, "global_batch"));
    fmt::print("  seed      {}\n", number(content, "seed"));
    print_tensors(content.tensors);
  }
  if (!is_any_whole) {
    throw DataError(fmt::format("{}: none of its checkpoints is whole", folder));
  }
}

} // namespace trainer
