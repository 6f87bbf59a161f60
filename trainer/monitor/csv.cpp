#include "trainer/monitor/csv.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <string_view>
#include <thread>

#include "trainer/errors.h"

namespace trainer {

CsvLog::CsvLog(std::string path)
    : path_(std::move(path)),
      file_(open(path_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666)) {
  if (file_ < 0) {
    throw Error(fmt::format("--csv={}: cannot write: {}", path_, std::strerror(errno)));
  }
  if (lseek(file_, 0, SEEK_END) == 0) {
    write("step,epoch,loss,accuracy,samples_per_second,input_share,waiting_share,overlap_share\n");
  }
}

CsvLog::~CsvLog() {
  if (file_ >= 0) {
    close(file_);
  }
}

CsvLog::Lock::Lock(const CsvLog& log) : file_(log.file_) {
  constexpr std::chrono::milliseconds k_longest{200};
  const auto deadline = std::chrono::steady_clock::now() + k_longest;
  while (flock(file_, LOCK_EX | LOCK_NB) != 0 && (errno == EWOULDBLOCK || errno == EINTR) &&
         std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

CsvLog::Lock::~Lock() { flock(file_, LOCK_UN); }

void CsvLog::line(const LogLine& line) {
  write(fmt::format("{},{:.4f},{:.6g},{:.6g},{:.6g},{:.4f},{:.4f},{}\n", line.step, line.epoch,
                    line.loss, line.accuracy, line.samples_per_second, line.input_bound,
                    line.waiting, line.overlap ? fmt::format("{:.4f}", *line.overlap) : ""));
}

void CsvLog::forget_after(std::int64_t step) const {
  const off_t size = lseek(file_, 0, SEEK_END);
  std::string text(static_cast<std::size_t>(std::max<off_t>(size, 0)), '\0');
  if (pread(file_, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size())) {
    throw Error(fmt::format("--csv={}: cannot read: {}", path_, std::strerror(errno)));
  }
  for (std::size_t at = text.find('\n'); at < text.size();) { // The first line names the columns.
    const std::size_t line = at + 1;
    std::int64_t its_step = -1;
    std::from_chars(text.data() + line, text.data() + text.size(), its_step);
    if (its_step > step) {
      if (ftruncate(file_, static_cast<off_t>(line)) != 0) {
        throw Error(fmt::format("--csv={}: cannot truncate: {}", path_, std::strerror(errno)));
      }
      return;
    }
    at = text.find('\n', line);
  }
}

std::int64_t CsvLog::last_step() const {
  std::array<char, 1024> tail{}; // Longer than a line.
  const off_t end = lseek(file_, 0, SEEK_END);
  const off_t from = std::max<off_t>(end - static_cast<off_t>(tail.size()), 0);
  const ssize_t got = pread(file_, tail.data(), tail.size(), from);
  std::string_view text(tail.data(), static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  while (text.ends_with('\n')) {
    text.remove_suffix(1);
  }
  text.remove_prefix(text.rfind('\n') + 1);
  std::int64_t step = -1; // Stays -1 if the line is the header.
  std::from_chars(text.data(), text.data() + text.size(), step);
  return step;
}

void CsvLog::write(const std::string& text) const {
  const off_t before = lseek(file_, 0, SEEK_END);
  if (::write(file_, text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    const int error = errno;
    if (ftruncate(file_, before) != 0) {
      // The partial line stays.
    }
    throw Error(fmt::format("--csv={}: cannot write: {}", path_, std::strerror(error)));
  }
}

} // namespace trainer
