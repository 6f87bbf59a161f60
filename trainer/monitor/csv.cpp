#include "trainer/monitor/csv.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "trainer/errors.h"

namespace trainer {

CsvLog::CsvLog(std::string path)
    : path_(std::move(path)),
      file_(open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666)) {
  if (file_ < 0) {
    throw Error(fmt::format("--csv={}: cannot be written: {}", path_, std::strerror(errno)));
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

void CsvLog::line(const LogLine& line) {
  write(fmt::format("{},{:.4f},{:.6g},{:.6g},{:.6g},{:.4f},{:.4f},{}\n", line.step, line.epoch,
                    line.loss, line.accuracy, line.samples_per_second, line.input_bound,
                    line.waiting, line.overlap ? fmt::format("{:.4f}", *line.overlap) : ""));
}

void CsvLog::write(const std::string& text) const {
  const off_t before = lseek(file_, 0, SEEK_END);
  if (::write(file_, text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    const int error = errno;
    if (ftruncate(file_, before) != 0) {
      // What is there is all there is.
    }
    throw Error(fmt::format("--csv={}: cannot be written: {}", path_, std::strerror(error)));
  }
}

} // namespace trainer
