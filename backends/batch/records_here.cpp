#include "backends/batch/records_here.h"

#include "backends/support/os/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <string_view>

namespace dtrain::batch {

std::string job_folder(const QueueSystem& system, const JobRef& job) {
  return fmt::format("{}/{}/{}", system.engine, job.namespace_name, job.name);
}

std::string read_records_in(int folder) {
  int run = 0;
  while (faccessat(folder, std::to_string(run + 1).c_str(), F_OK, 0) == 0) {
    ++run;
  }
  const auto add = [](int where, const std::string& name, std::string& text) {
    text += read_file_at(where, name).value_or("");
  };
  std::string text;
  add(folder, "job", text);
  add(folder, "runs", text);
  const Fd last(openat(folder, std::to_string(run).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (last) {
    for_each_entry(last.get(), [&](const char* entry) {
      const std::string_view name(entry);
      if (!name.starts_with('.') && (name.ends_with(".start") || name.ends_with(".exit"))) {
        add(last.get(), entry, text);
      }
    });
  }
  return text;
}

std::string read_records_here(const std::string& folder) {
  const Fd job(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  return job ? read_records_in(job.get()) : "";
}

} // namespace dtrain::batch
