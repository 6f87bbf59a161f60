#include "backends/slurm/submission.h"

#include "backends/slurm/script.h"
#include "backends/support/code/code.h"
#include "backends/support/os/files.h"
#include "submit/errors.h"
#include "submit/template/quote.h"
#include "submit/template/render.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

namespace dtrain::slurm {
namespace {

constexpr mode_t k_folder_mode = 0700;
constexpr mode_t k_file_mode = 0600;

/// A job's folder while Slurm does not have the job: gone with it.
class NewFolder {
 public:
  /// False where there is one of that name.
  bool make(const std::string& path) {
    make_parents(path);
    if (mkdir(path.c_str(), k_folder_mode) != 0) {
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

  void keep() { is_kept_ = true; }

 private:
  bool is_kept_ = false;
  std::string path_;
  Fd fd_;
};

/// "17;cluster" of what sbatch said, which may have warned before.
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

std::string state_folder_here() {
  const auto variable = [](const char* name) {
    const char* const text = std::getenv(name);
    return std::string(text == nullptr ? "" : text);
  };
  const std::string state = variable("XDG_STATE_HOME");
  return (state.empty() ? variable("HOME") + "/.local/state" : state) + "/dtrain";
}

std::unique_ptr<Subprocess> waiting_sbatch(const std::string& folder, const std::string& log) {
  return Login::start({.argv = {"sbatch", "--parsable",
                                fmt::format("--output={}/{}/{}", state_folder_here(), folder, log),
                                "--open-mode=append"},
                       .without = {k_git_token_variable},
                       .is_fed = true});
}

std::string submit_here(const Login& login, const Submission& job,
                        std::unique_ptr<Subprocess> sbatch) {
  if (sbatch == nullptr) {
    sbatch = waiting_sbatch(job.folder, job.log);
  }
  NewFolder folder;
  if (!folder.make(fmt::format("{}/{}", state_folder_here(), job.folder))) {
    return "";
  }
  for (const auto& [name, text] : job.files) {
    folder.write(name, text);
  }
  folder.write(k_script, job.script);
  sbatch->feed(job.script);
  sbatch->end_input();
  std::string said;
  for (auto some = sbatch->read_some(); !some.empty(); some = sbatch->read_some()) {
    said += some;
    if (said.ends_with('\n')) { // All that is left to it is to end.
      break;
    }
  }
  std::string id = number_in(said);
  if (id.empty() || id.find_first_not_of("0123456789") != std::string::npos) {
    login.refuse(sbatch->result());
  }
  folder.keep();
  folder.write("job", job.record.first + id + job.record.second); // At once: it is there whole.
  sbatch->wait();
  if (!sbatch->errors().empty()) {
    folder.write("sbatch.err", sbatch->errors());
  }
  return id;
}

std::string submit_by_script(const Login& login, const Submission& job) {
  auto files =
      fmt::format("has_code={}\nscript={}\n", job.has_code ? "yes" : "", quote_sh(job.script));
  for (const auto& [name, text] : job.files) {
    files += made(name, text);
  }
  const auto said = login.run(std::string(builtin_template("slurm/commands/submit.sh").text),
                              {job.folder, job.log, job.record.first, job.record.second},
                              fmt::format("{}\n{}{}", files.size(), files, job.code));
  std::string id = number_in(said);
  return id == "taken" ? "" : id;
}

} // namespace dtrain::slurm
