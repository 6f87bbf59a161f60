#include "backends/supervised/store/job_folder.h"

#include "backends/support/os/files.h"
#include "submit/errors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>

namespace dtrain {

namespace {

constexpr const char* k_spare_file = ".status.spare";

} // namespace

std::string log_file_name(std::string_view instance, int restart) {
  return fmt::format("{}/{}.{}.log", k_logs_folder, instance, restart);
}

std::optional<std::string> JobFolder::read(const std::string& name) const {
  return read_file_at(fd(), name);
}

void JobFolder::write(const std::string& name, std::string_view text) const {
  write_file_at(fd(), name, text);
}

std::optional<JobRecord> JobFolder::record() const {
  const auto text = read(k_status_file);
  return text ? read_job_record(*text) : std::nullopt;
}

void JobFolder::set_record(const JobRecord& record) const {
  write(k_status_file, write_job_record(record));
}

void JobFolder::reserve_last_record(std::size_t bytes) const {
  const Fd spare(openat(fd(), k_spare_file, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  const int error = spare ? posix_fallocate(spare.get(), 0, static_cast<off_t>(bytes)) : errno;
  if (error != 0) {
    throw Error(fmt::format("cannot write to {}: {}", printable(path_), errno_text(error)));
  }
}

void JobFolder::set_last_record(const JobRecord& record) const {
  try {
    set_record(record);
    unlinkat(fd(), k_spare_file, 0);
  } catch (const Error&) {
    const auto text = write_job_record(record);
    const Fd spare(openat(fd(), k_spare_file, O_WRONLY | O_CLOEXEC));
    if (!spare || !write_all(spare.get(), text) ||
        ftruncate(spare.get(), static_cast<off_t>(text.size())) != 0 ||
        renameat(fd(), k_spare_file, fd(), k_status_file) != 0) {
      throw;
    }
  }
}

Fd JobFolder::create_log(std::string_view instance, int restart) const {
  const auto name = log_file_name(instance, restart);
  Fd file(openat(fd(), name.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!file) {
    throw Error(fmt::format("cannot write {}/{}: {}", printable(path_), name, errno_text()));
  }
  return file;
}

FolderLock::FolderLock(const JobFolder& folder) : fd_(folder.fd()) {
  if (flock(fd_, LOCK_EX) != 0) {
    throw Error(fmt::format("cannot lock {}: {}", printable(folder.path()), errno_text()));
  }
}

FolderLock::~FolderLock() { flock(fd_, LOCK_UN); }

} // namespace dtrain
