#include "backends/batch/code.h"

#include "backends/support/code/code.h"
#include "backends/support/code/code_archive.h"
#include "backends/support/os/files.h"
#include "backends/support/progress.h"
#include "submit/errors.h"

#include <fmt/format.h>
#include <stdlib.h>

#include <filesystem>

namespace dtrain::batch {
namespace {

namespace fs = std::filesystem;

/// Gone with it.
class TemporaryFolder {
 public:
  TemporaryFolder() : path_((fs::temp_directory_path() / "dtrain-code-XXXXXX").string()) {
    if (mkdtemp(path_.data()) == nullptr) {
      throw Error(fmt::format("cannot make {}: {}", printable(path_), errno_text()));
    }
  }
  ~TemporaryFolder() {
    std::error_code error;
    fs::remove_all(path_, error);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// Also returns a summary for people in `text`.
std::string pack(const std::string& folder, const SubmitSink& tell, std::string& text) {
  const CodeArchive archive =
      pack_folder(folder, k_most_packed_bytes, as_step(SubmitStep::upload, tell));
  std::string bytes;
  bytes.reserve(static_cast<std::size_t>(archive.packed_bytes));
  for (const CodePart& part : archive.parts) {
    bytes += part.gzip;
  }
  text = archive.text();
  return bytes;
}

} // namespace

std::string packed_code(const JobSpec& job, const SubmitSink& tell) {
  std::string text;
  std::string bytes;
  if (job.sync_mode == k_sync_git) {
    const TemporaryFolder clone;
    const std::string code = clone.path() + "/code";
    const std::string brought = bring_code(job, code, tell);
    bytes = pack(code, tell, text);
    text = brought;
  } else {
    report(tell, {.step = SubmitStep::upload});
    bytes = pack(job.sync_source.empty() ? "." : job.sync_source, tell, text);
  }
  report(tell, {.step = SubmitStep::upload, .done = true, .text = text});
  return bytes;
}

} // namespace dtrain::batch
