#include "cli/job_path.h"

#include "cli/target.h"
#include "submit/errors.h"

#include <fmt/format.h>

#include <filesystem>

namespace dtrain {

std::string JobPath::name() const {
  const auto normal = std::filesystem::path(path).lexically_normal();
  const auto last = (normal.has_filename() ? normal : normal.parent_path()).filename().string();
  return last.empty() || last == "." || last == ".." ? job : last;
}

bool is_job_path(const std::string& text) {
  const auto colon = text.find(':');
  return colon != std::string::npos && colon > 0 &&
         text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-/") == colon &&
         text.front() != '/';
}

JobPath read_job_path(const std::string& text) {
  if (!is_job_path(text)) {
    throw UsageError(
        fmt::format("'{}': give JOB:PATH, as in dtrain cp mnist:ckpt .", printable(text)));
  }
  const auto colon = text.find(':');
  auto left = text.substr(0, colon);
  if (const auto slash = left.find('/');
      slash != std::string::npos && is_type_word(left.substr(0, slash))) {
    left.erase(0, slash + 1);
  }
  const auto slash = left.find('/');
  JobPath found{left.substr(0, slash), "", text.substr(colon + 1)};
  if (slash != std::string::npos) {
    found.instance = left.substr(slash + 1);
  }
  if (found.job.empty() || (slash != std::string::npos && found.instance.empty())) {
    throw UsageError(fmt::format(
        "'{}': give JOB/INSTANCE:PATH, as in dtrain cp mnist/worker-1:ckpt .", printable(text)));
  }
  return found;
}

} // namespace dtrain
