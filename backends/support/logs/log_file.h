// Writes what one instance prints, both streams, into one log file (log_format.h).
//
// A line is written when its newline comes. One without (a prompt, a progress bar) is written as a
// part after k_partial_delay, or at once where it is longer than k_longest_part. A full disk loses
// lines and never the job: the file keeps whole lines only, what was written of one whose rest did
// not fit is taken back, and it says how many lines it lacks once there is room again.
//
// A file with a limit is given back from its begin, block by block: it becomes a hole, and offsets
// stay what they were for those who read it meanwhile (log_reader.h).
#pragma once

#include "backends/job_status.h"
#include "backends/support/os/fd.h"

#include <array>
#include <chrono>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace dtrain {

enum class Stream { out, err };

class LogFile {
 public:
  static constexpr std::chrono::milliseconds k_partial_delay{50};
  static constexpr std::size_t k_longest_part = 16384; ///< Container runtimes' own limit.
  static constexpr std::size_t k_last_lines = 20;      ///< Kept of stderr, for a failure's cause.
  static constexpr std::size_t k_longest_last_line = 2048;

  /// Takes a file of whole entries, opened for appending; without one, lines are only kept.
  /// `limit`: of the file's bytes; 0: none. Beyond it the oldest entries go.
  explicit LogFile(Fd file, std::int64_t limit = 0);

  void write(Stream stream, std::string_view bytes, Time now);

  /// True while a part waits for its newline.
  bool has_partial() const { return !partial_[0].empty() || !partial_[1].empty(); }
  void flush_partial(Time now);

  /// Writes the rest of both streams as complete lines.
  void finish(Time now);

  /// The last lines of stderr, an unfinished one too.
  std::vector<std::string> last_stderr() const;

  /// errno of the first write that failed; 0: none did.
  int first_error() const { return first_error_; }

 private:
  void append(Stream stream, bool complete, std::string_view text);
  void keep_last(std::string_view text, bool complete);
  void flush(Time now);
  void drop_oldest();

  Fd file_;
  std::int64_t limit_;
  std::string buffer_;                 ///< Entries not yet written to the file.
  std::array<std::string, 2> partial_; ///< Of each stream, since the last newline or part.
  std::array<bool, 2> in_line_{};      ///< Parts were written, the line's end was not.
  std::array<bool, 2> skips_{};        ///< The rest of a line that was lost is not written either.
  std::deque<std::string> last_;
  bool last_is_open_ = false;
  Time time_ = 0;
  std::int64_t size_ = 0;          ///< Bytes of complete entries in the file …
  std::int64_t dropped_ = 0;       ///< Dropped from its beginning.
  std::int64_t whole_size_ = 0;    ///< … up to the last that ends a line.
  std::size_t buffered_whole_ = 0; ///< The same in the buffer; 0: none.
  std::int64_t buffered_lines_ = 0;
  std::int64_t lost_lines_ = 0;
  int first_error_ = 0;
};

} // namespace dtrain
