#include "backends/slurm/find_here.h"

#include "backends/slurm/identity.h"
#include "backends/slurm/queue.h"
#include "backends/support/os/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string_view>

namespace dtrain::slurm {
namespace {

/// What is between `before` and the next `end`; empty: neither is there.
std::string_view between(std::string_view text, std::string_view before, char end) {
  const auto begin = text.find(before);
  const auto rest = begin == std::string_view::npos ? "" : text.substr(begin + before.size());
  return rest.substr(0, rest.find(end));
}

/// find.sh's records(): what is not there yet is left out.
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

} // namespace

std::string read_records_here(const std::string& folder) {
  const Fd job(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  return job ? read_records_in(job.get()) : "";
}

std::optional<std::string> find_here(const Login& login, const std::string& folder) {
  const Fd job(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  struct stat info {};
  if (!job || fstatat(job.get(), "job", &info, 0) != 0 || info.st_uid != geteuid()) {
    return std::nullopt;
  }
  const std::string line = read_file_at(job.get(), "job").value_or("");
  const auto id = between(line, R"("id":")", '"');
  if (id.empty() || line.find(R"("array":")") != std::string::npos) {
    return std::nullopt;
  }
  const auto squeue = Login::start(
      {.argv = {"squeue", "--local", "--noheader", "--states=all", fmt::format("--jobs={}", id),
                fmt::format("--format={}", k_queue_format)},
       .env = Login::plain_words()});
  std::string records = read_records_in(job.get()); // Meanwhile.
  const CommandResult said = squeue->result();
  if (!said.ending.good()) {
    if (said.errors.find("Invalid job id") == std::string::npos) {
      login.refuse(said);
    }
    return std::nullopt;
  }
  if (said.out.empty() || said.out.find("|REVOKED|") != std::string::npos) {
    return std::nullopt;
  }
  if (said.out.find("|PENDING|") == std::string::npos &&
      said.out.find("|RUNNING|") == std::string::npos) {
    records = read_records_in(job.get()); // They may have said only now how it ended.
  }
  return fmt::format("{}\ncluster {}\n{}\n\n{}", folder, cluster_here(), records, said.out);
}

} // namespace dtrain::slurm
