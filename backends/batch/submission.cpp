#include "backends/batch/submission.h"

#include "backends/batch/job_line.h"
#include "backends/batch/records_here.h"
#include "backends/support/code/code.h"
#include "backends/support/os/files.h"
#include "backends/support/os/signal_fd.h"
#include "backends/support/user/config_folder.h"
#include "submit/errors.h"
#include "submit/options/environment.h"
#include "submit/template/quote.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <ctime>

namespace dtrain::batch {
namespace {

constexpr mode_t k_folder_mode = 0700;
constexpr mode_t k_file_mode = 0600;
constexpr std::chrono::minutes k_longest_submission{10};

/// A job's folder while the queue does not have the job: gone with it.
class NewFolder {
 public:
  /// False where there is one of that name. What a submission left that was ended before it wrote
  /// down anything is no job.
  bool make(const std::string& path) {
    const auto make_it = [&] { return mkdir(path.c_str(), k_folder_mode) == 0; };
    bool is_made = make_it();
    if (!is_made && errno == ENOENT) { // The first of its namespace.
      make_parents(path);
      is_made = make_it();
    }
    if (!is_made) {
      if (errno == EEXIST && is_left_over(path) && remove_tree_at(AT_FDCWD, path)) {
        return make(path);
      }
      if (errno == EEXIST) {
        return false;
      }
      throw Error(fmt::format("cannot make folder {}: {}", printable(path), errno_text()));
    }
    path_ = path;
    fd_ = Fd(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    return true;
  }
  NewFolder() = default;
  ~NewFolder() {
    if (fd_ && !is_kept_) {
      remove_tree_at(AT_FDCWD, path_);
    }
  }
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;

  void write(const std::string& name, std::string_view text) const {
    const Fd file(
        openat(fd_.get(), name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, k_file_mode));
    if (!file || !write_all(file.get(), text)) {
      throw Error(fmt::format("cannot write {}/{}: {}", printable(path_), name, errno_text()));
    }
  }

  /// Overwrites the beginning of the file, which keeps its length: that works on a full disk, too.
  /// Ignores failures.
  void write_over(const std::string& name, std::string_view text) const {
    const Fd file(openat(fd_.get(), name.c_str(), O_WRONLY | O_CLOEXEC));
    [[maybe_unused]] const auto written = pwrite(file.get(), text.data(), text.size(), 0);
  }

  void keep() { is_kept_ = true; }

 private:
  static bool is_left_over(const std::string& path) {
    constexpr std::time_t k_longest = 60;
    struct stat info {};
    const bool is_old = stat(path.c_str(), &info) == 0 && info.st_mtime + k_longest < time(nullptr);
    const bool has_record = access((path + "/job").c_str(), F_OK) == 0;
    errno = EEXIST;
    return is_old && !has_record;
  }

  bool is_kept_ = false;
  std::string path_;
  Fd fd_;
};

/// The id in "17;cluster", which warnings may precede.
std::string number_in(std::string_view said) {
  said = said.substr(0, said.find_last_not_of('\n') + 1);
  const auto line = said.substr(said.rfind('\n') + 1);
  return std::string(line.substr(0, line.find(';')));
}

/// The sh that makes a file, for submit.sh.
std::string made(std::string_view name, std::string_view text) {
  return fmt::format("printf %s {} >{} || fail\n", quote_sh(text), name);
}

} // namespace

std::unique_ptr<Subprocess> start_submitter(const Login& login, const std::string& folder,
                                            const std::string& log) {
  return login.start(
      {.argv = login.system().submit_command(state_folder() / folder / log),
       .without = {environment::k_git_token.name},
       .is_fed = true,
       // Whoever ends dtrain does not end it midway: the queue may have the job by then.
       .limit = k_longest_submission});
}

std::string submit_here(const Login& login, const Submission& job,
                        std::unique_ptr<Subprocess> submitter) {
  if (submitter == nullptr) {
    submitter = start_submitter(login, job.folder, job.log);
  }
  // Signals wait until everything has been written.
  const SignalFd signals({SIGINT, SIGTERM, SIGHUP});
  NewFolder folder;
  if (!folder.make(state_folder() / job.folder)) {
    return "";
  }
  folder.write("job",
               job.record); // First: it is found by its comment where no more can be written.
  for (const auto& [name, text] : job.files) {
    folder.write(name, text);
  }
  folder.write(std::string(login.system().script), job.script);
  submitter->feed(job.script);
  submitter->end_input();
  std::string said;
  for (auto some = submitter->read_some(); !some.empty(); some = submitter->read_some()) {
    said += some;
    if (said.ends_with('\n')) { // It can only end now: its warnings came before.
      break;
    }
  }
  std::string id = number_in(said);
  if (id.empty() || id.find_first_not_of("0123456789") != std::string::npos) {
    login.refuse(submitter->result());
  }
  folder.keep();
  const auto [before, after] = around_id(job.record);
  folder.write_over("job", fmt::format("{}{:{}}{}", before, '"' + id + '"', k_id_width, after));
  submitter->leave();
  if (!submitter->errors().empty()) {
    try {
      folder.write("submit.err", submitter->errors());
    } catch (const Error&) { // A full disk loses a warning, no job.
    }
  }
  return id;
}

std::string submit_by_script(const Login& login, const std::string& script, const Submission& job) {
  auto files =
      fmt::format("has_code={}\nscript={}\n", job.has_code ? "yes" : "", quote_sh(job.script));
  for (const auto& [name, text] : job.files) {
    files += made(name, text);
  }
  files += "whole=yes\n";
  const auto [before, after] = around_id(job.record);
  std::vector<std::string> args = {job.folder, std::string(login.system().script), before, after,
                                   std::to_string(k_id_width)};
  const auto command = login.system().submit_command("@FOLDER@/" + job.log); // Known there alone.
  args.insert(args.end(), command.begin(), command.end());
  const auto said = login.run(script, args, fmt::format("{}\n{}{}", files.size(), files, job.code));
  std::string id = number_in(said);
  return id == "taken" ? "" : id;
}

} // namespace dtrain::batch
