#include "backends/support/os/subprocess.h"

#include "backends/support/os/files.h"
#include "backends/support/os/pipe.h"
#include "backends/support/os/spawn.h"
#include "submit/errors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

extern "C" { // glibc 2.36's header forgets it.
#include <sys/pidfd.h>
}

#include <algorithm>
#include <array>
#include <cerrno>
#include <tuple>
#include <unordered_map>

namespace dtrain {

namespace {

constexpr std::size_t k_pipe_bytes = 65536; ///< A pipe's capacity.

/// A file of those bytes, at its beginning: nobody need feed it, nor hear of a reader that is gone.
Fd input_file(const std::string& bytes) {
  Fd file(memfd_create("stdin", MFD_CLOEXEC));
  if (!file || !write_all(file.get(), bytes) || lseek(file.get(), 0, SEEK_SET) != 0) {
    throw EngineError(fmt::format("cannot buffer a program's input: {}", errno_text()));
  }
  return file;
}

/// Ours and the program's; sockets, so that one whose reader is gone raises no signal.
std::pair<Fd, Fd> feeding_ends() {
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    throw EngineError(fmt::format("cannot make a pipe for a program's input: {}", errno_text()));
  }
  return {Fd(ends[0]), Fd(ends[1])};
}

/// True where more may come.
bool read_block(const Fd& pipe, char* block, std::size_t size, std::string_view& bytes) {
  const auto count = read(pipe.get(), block, size);
  if (count > 0) {
    bytes = {block, static_cast<std::size_t>(count)};
  }
  return count > 0 || (count < 0 && (errno == EAGAIN || errno == EINTR));
}

} // namespace

std::vector<std::string>
merge_environment(const char* const* base,
                  const std::vector<std::pair<std::string, std::string>>& changes,
                  const std::vector<std::string>& without) {
  std::unordered_map<std::string_view, std::string_view> last;
  for (const auto& [key, value] : changes) {
    last[key] = value;
  }
  std::vector<std::string> merged;
  for (; *base != nullptr; ++base) {
    const std::string_view entry(*base);
    const auto key = entry.substr(0, entry.find('='));
    if (!last.contains(key) && std::find(without.begin(), without.end(), key) == without.end()) {
      merged.emplace_back(entry);
    }
  }
  for (const auto& change : changes) {
    if (const auto found = last.extract(change.first)) {
      merged.push_back(fmt::format("{}={}", change.first, found.mapped()));
    }
  }
  return merged;
}

Subprocess::Subprocess(const Command& command)
    : leads_group_(command.limit.has_value()),
      block_(std::make_unique_for_overwrite<char[]>(k_pipe_bytes)) {
  auto out = make_pipe();
  auto err = command.shows_errors ? Pipe() : make_pipe();
  make_non_blocking(out.read_end);
  make_non_blocking(err.read_end);
  Fd input;
  if (command.is_fed) {
    std::tie(in_, input) = feeding_ends();
  } else {
    input = command.input.empty() ? Fd(open("/dev/null", O_RDONLY | O_CLOEXEC))
                                  : input_file(command.input);
  }
  pid_ = spawn({.argv = command.argv,
                .env = command.env,
                .without = command.without,
                .folder = command.folder,
                .in = input.get(),
                .out = out.write_end.get(),
                .err = err.write_end.get(),
                .leads_group = leads_group_});
  if (command.limit) {
    deadline_ = PollLoop::Clock::now() + *command.limit;
  }
  out_ = std::move(out.read_end);
  err_ = std::move(err.read_end);
  end_ = Fd(pidfd_open(pid_, 0));
  loop_.add(out_.get(), [this] { read_output(); });
  if (err_) {
    loop_.add(err_.get(), [this] { read_errors(); });
  }
  loop_.add(end_.get(), [this] { reap(); });
}

Subprocess::~Subprocess() {
  if (pid_ != 0) {
    kill_all();
    wait_for_child(pid_);
  }
}

void Subprocess::feed(std::string_view bytes) {
  while (!bytes.empty()) {
    const auto count = send(in_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count < 0 && errno != EINTR) {
      return; // Its last output says why.
    }
    bytes.remove_prefix(static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
  }
}

std::string_view Subprocess::read_some() {
  pending_ = {};
  while (pending_.empty() && out_) {
    if (pid_ != 0) {
      step();
    } else { // Reads what is still in the pipe; a process that it left behind may hold it open.
      read_output();
      if (pending_.empty()) {
        out_.reset();
      }
    }
  }
  return pending_;
}

Ending Subprocess::wait() {
  while (!read_some().empty()) {
  }
  while (pid_ != 0) {
    step();
  }
  if (err_) {
    read_errors();
  }
  return ending_;
}

void Subprocess::step() {
  loop_.wait(deadline_);
  if (pid_ != 0 && PollLoop::Clock::now() >= deadline_) {
    deadline_ = PollLoop::Clock::time_point::max();
    ending_.late = true;
    kill_all();
  }
}

void Subprocess::read_output() {
  if (!read_block(out_, block_.get(), k_pipe_bytes, pending_)) {
    loop_.remove(out_.get());
    out_.reset();
  }
}

void Subprocess::read_errors() {
  std::array<char, 4096> block; // NOLINT(*-member-init): read() fills it.
  std::string_view bytes = " ";
  for (std::size_t i = 0; i < k_pipe_bytes / block.size() && !bytes.empty(); ++i) {
    bytes = {};
    if (!read_block(err_, block.data(), block.size(), bytes)) {
      loop_.remove(err_.get());
      err_.reset();
      break;
    }
    errors_ += bytes;
  }
  if (errors_.size() > k_errors_kept) {
    errors_.erase(0, errors_.size() - k_errors_kept);
  }
}

void Subprocess::reap() {
  constexpr int k_unknown = -1; // Somebody else has waited for it.
  int status = 0;
  const pid_t reaped = waitpid(pid_, &status, WNOHANG);
  if (reaped == 0) {
    return;
  }
  pid_ = 0;
  loop_.remove(end_.get());
  ending_.signal = reaped > 0 && WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  ending_.exit_code = reaped < 0 ? k_unknown : WIFEXITED(status) ? WEXITSTATUS(status) : 0;
}

void Subprocess::kill_all() const { kill(leads_group_ ? -pid_ : pid_, SIGKILL); }

CommandResult Subprocess::result() {
  CommandResult result;
  for (auto bytes = read_some(); !bytes.empty(); bytes = read_some()) {
    result.out += bytes;
  }
  result.ending = wait();
  result.errors = errors();
  return result;
}

void Subprocess::leave() {
  if (err_) {
    read_errors();
  }
  pid_ = 0;
}

CommandResult run_command(const Command& command) { return Subprocess(command).result(); }

std::string last_line(std::string_view text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r' || text.back() == ' ')) {
    text.remove_suffix(1);
  }
  const auto at = text.rfind('\n');
  return printable(at == std::string_view::npos ? text : text.substr(at + 1));
}

} // namespace dtrain
