// The output of one rank: its two pipes, read in a poll loop, and its log file.
#pragma once

#include "backends/supervised/gang/channel.h"
#include "backends/support/logs/log_file.h"
#include "backends/support/os/poll_loop.h"

#include <array>
#include <functional>
#include <string_view>
#include <vector>

namespace dtrain {

class RankOutput {
 public:
  static constexpr std::size_t k_block_bytes = 65536; ///< A pipe's capacity.

  /// `block`: k_block_bytes that the outputs of a gang share. `on_partial` is called after a read
  /// that leaves a line without its end.
  RankOutput(PollLoop& loop, std::vector<char>& block, LogFile log,
             std::function<void()> on_partial);
  ~RankOutput() { close_pipes(); }

  RankOutput(const RankOutput&) = delete;
  RankOutput& operator=(const RankOutput&) = delete;

  /// Reads the pipes of a process from here on; those of an earlier one are closed.
  void attach(Fd out, Fd err);

  /// For a process that has no pipes here.
  void take(Stream stream, std::string_view bytes);

  /// Reads what is in the pipes now: a process that the rank left may print forever.
  void drain();

  /// Reads no more, and ends the last lines.
  void finish();

  LogFile& log() { return log_; }

 private:
  void read_pipe(Stream stream);
  void close_pipes();

  PollLoop& loop_;
  std::vector<char>& block_;
  LogFile log_;
  std::function<void()> on_partial_;
  std::array<Fd, 2> pipes_;
};

} // namespace dtrain
