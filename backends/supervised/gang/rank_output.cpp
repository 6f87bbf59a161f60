#include "backends/supervised/gang/rank_output.h"

#include "backends/support/logs/time_text.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>

namespace dtrain {

RankOutput::RankOutput(PollLoop& loop, std::vector<char>& block, LogFile log,
                       std::function<void()> on_partial)
    : loop_(loop), block_(block), log_(std::move(log)), on_partial_(std::move(on_partial)) {}

void RankOutput::attach(Fd out, Fd err) {
  close_pipes();
  if (!out) {
    return;
  }
  pipes_ = {std::move(out), std::move(err)};
  for (const auto stream : {Stream::out, Stream::err}) {
    loop_.add(pipes_[static_cast<std::size_t>(stream)].get(),
              [this, stream] { read_pipe(stream); });
  }
}

/// Reads one block, so that a rank that prints without end does not starve the others.
void RankOutput::read_pipe(Stream stream) {
  auto& pipe = pipes_[static_cast<std::size_t>(stream)];
  const auto count = read(pipe.get(), block_.data(), block_.size());
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) {
    return;
  }
  if (count <= 0) {
    loop_.remove(pipe.get());
    pipe.reset();
    return;
  }
  take(stream, {block_.data(), static_cast<std::size_t>(count)});
}

void RankOutput::take(Stream stream, std::string_view bytes) {
  log_.write(stream, bytes, time_now());
  if (log_.has_partial()) {
    on_partial_();
  }
}

void RankOutput::drain() {
  for (const auto stream : {Stream::out, Stream::err}) {
    const auto& pipe = pipes_[static_cast<std::size_t>(stream)];
    int available = 0;
    if (pipe && ioctl(pipe.get(), FIONREAD, &available) == 0) {
      for (; available > 0 && pipe; available -= static_cast<int>(block_.size())) {
        read_pipe(stream);
      }
    }
  }
}

void RankOutput::finish() {
  drain();
  close_pipes();
  log_.finish(time_now());
}

void RankOutput::close_pipes() {
  for (auto& pipe : pipes_) {
    if (pipe) {
      loop_.remove(pipe.get());
      pipe.reset();
    }
  }
}

} // namespace dtrain
