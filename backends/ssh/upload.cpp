#include "backends/ssh/upload.h"

#include "backends/ssh/ssh_command.h"
#include "backends/support/os/pipe.h"
#include "backends/support/os/spawn.h"
#include "backends/support/os/subprocess.h"
#include "submit/template/render.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace dtrain::ssh {

namespace {

constexpr std::size_t k_upload_block = 65536;

} // namespace

Upload::Upload(Connections& connections, std::string host, const Payload& payload,
               const std::vector<std::string>& digests)
    : connections_(connections), host_(std::move(host)), block_(k_upload_block) {
  auto archive = make_pipe();
  auto said = make_pipe();
  std::vector<std::string> tar{"tar", "-c", "-f", "-", "--"};
  tar.insert(tar.end(), digests.begin(), digests.end());
  const Fd null(open("/dev/null", O_RDONLY | O_CLOEXEC));
  // Whatever the job's folder is called by now.
  tar_ = spawn({.argv = tar,
                .folder = fmt::format("/proc/{}/fd/{}", getpid(), payload.folder.get()),
                .in = null.get(),
                .out = archive.write_end.get(),
                .err = said.write_end.get(),
                .leads_group = true});
  archive_ = std::move(archive.read_end);
  said_ = std::move(said.read_end);
  make_non_blocking(archive_);
  make_non_blocking(said_);
}

Upload::~Upload() {
  if (tar_ != 0) {
    kill(-tar_, SIGKILL);
    wait_for_child(tar_);
  }
  if (!has_ended_) {
    connections_.drop(host_, "the upload was interrupted");
  }
}

int Upload::out() const {
  const auto* connection = connections_.find(host_);
  return connection != nullptr && !connection->has_unsent() && archive_ ? archive_.get() : -1;
}

bool Upload::fail(const std::string& why) {
  failure_ = "cannot receive the program or the code: " + why;
  return true;
}

/// True where it failed.
bool Upload::finish_archive() {
  archive_.reset();
  if (wait_for_child(std::exchange(tar_, 0)) != 0) {
    return fail(last_line(read_what_is_there(said_)));
  }
  std::string script;
  for (const auto* part : {"ssh/sums.sh", "ssh/receive.sh"}) {
    script += builtin_template(part).text;
  }
  asked_ = connections_.ask(host_, script + fmt::format("begin() {{\nreceive {}\n}}\n", sent_));
  return false;
}

bool Upload::go_on() {
  if (asked_ != 0) {
    if (!connections_.is_answered(asked_)) {
      return false;
    }
    const auto answer = connections_.take_answer(asked_);
    return answer.failure.empty() || fail(answer.failure);
  }
  auto* connection = connections_.find(host_);
  if (connection == nullptr) {
    const auto* loss = connections_.loss(host_);
    return fail(loss == nullptr ? "the host is lost" : loss->why);
  }
  while (!connection->has_unsent()) {
    const auto count = read(archive_.get(), block_.data(), block_.size());
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) {
      break;
    }
    if (count <= 0) {
      return finish_archive();
    }
    connection->put({block_.data(), static_cast<std::size_t>(count)});
    sent_ += static_cast<std::size_t>(count);
  }
  return false;
}

} // namespace dtrain::ssh
