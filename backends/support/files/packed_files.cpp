#include "backends/support/files/packed_files.h"

#include "submit/errors.h"
#include "submit/template/render.h"

#include <fmt/format.h>

#include <algorithm>

namespace dtrain {
namespace {

constexpr std::string_view k_begin = "\ndtrain-archive\n";
constexpr int k_no_path = 3;
constexpr int k_failed = 1;

} // namespace

std::string pack_script() { return std::string(builtin_template("files/pack.sh").text); }

void PackedFiles::add(std::string_view bytes) {
  if (has_begun_) {
    (*sink_)(bytes);
    return;
  }
  before_ += bytes;
  if (const auto at = before_.find(k_begin); at != std::string::npos) {
    has_begun_ = true;
    (*sink_)(std::string_view(before_).substr(at + k_begin.size()));
    before_.clear();
  } else { // Keeps no more of a login's output than may be half of the line.
    before_.erase(0, before_.size() - std::min(before_.size(), k_begin.size()));
  }
}

void refuse_packed(const std::string& where, int exit_code, std::string_view errors) {
  const auto line = last_line(errors); // After the login's own.
  const auto text = fmt::format("{}: {}", where, line.empty() ? "tar failed" : line);
  if (exit_code == k_no_path) {
    throw NotFound(text);
  }
  throw EngineError(text);
}

CommandResult read_packed(const Command& command, const std::string& where, const ByteSink& sink) {
  Subprocess process(command);
  PackedFiles files(sink);
  for (std::string_view bytes; !(bytes = process.read_some()).empty();) {
    files.add(bytes);
  }
  CommandResult result;
  result.ending = process.wait();
  result.errors = process.errors();
  if (const int code = result.ending.exit_code; code == k_no_path || code == k_failed) {
    refuse_packed(where, code, result.errors);
  }
  return result;
}

} // namespace dtrain
