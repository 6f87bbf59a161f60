// The output of a host's agent (templates/ssh/agent.sh): "dtrain-agent WORD" on a line, after
// whatever the login prints, then frames, "KIND KEY BYTES\n" and that many arbitrary bytes.
#pragma once

#include "backends/supervised/gang/channel.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace dtrain::ssh {

struct AgentFrame {
  enum class Kind : std::uint8_t {
    heartbeat, ///< The answer to one of ours.
    out,       ///< Printed by a rank …
    err,       ///< … to its stderr.
    ended,     ///< Its exit code; all output has been sent.
    stuck,     ///< The same, with the processes that cannot be killed: "137 4711 4712".
    gpus,      ///< The GPUs of a rank, as in CUDA_VISIBLE_DEVICES.
    lacks,     ///< Why not; of no rank: why the host cannot be used.
  };

  Kind kind;
  RankId key; ///< The rank's, as it was started; 0: of none.
  std::string_view text;
};

class FrameReader {
 public:
  static constexpr std::size_t k_longest_text = std::size_t{1} << 20U;
  static constexpr std::size_t k_longest_header = 64;

  /// `word`: of the greeting; nobody else has it.
  explicit FrameReader(const std::string& word) : greeting_("\ndtrain-agent " + word + "\n") {}

  using Take = std::function<void(const AgentFrame&)>;

  /// Hands on each frame that is whole by now, one whose text is valid for the call. Throws
  /// EngineError where something else is there: somebody wrote into the connection.
  void read(std::string_view bytes, const Take& take);

  bool greeted() const { return greeted_; }

 private:
  bool find_greeting();

  std::string greeting_;
  std::string unread_;
  bool greeted_ = false;
};

/// The ending of a rank, from the text of `ended` or `stuck`: a shell reports 128 + N for a process
/// ended by signal N. Throws EngineError for other text.
RankEnding ending_of(const AgentFrame& frame);

/// Which processes on that host cannot be killed, by the text of `stuck`: a line for the rank's
/// log.
std::string stuck_text(const AgentFrame& frame, const std::string& host);

} // namespace dtrain::ssh
