// One connection to a host: an ssh of its own, first to hear what the host has, then a rank's.
//
// What is to run on the host goes over ssh's stdin, as a script for its sh, so that nothing of it
// is in anybody's list of processes: first templates/ssh/host.sh, then templates/ssh/guard.sh. From
// then on stdout and stderr are the rank's, byte for byte, and stdin takes signals for it by their
// names; the end of stdin is the rank's end. What ssh itself has to say comes apart from them.
#pragma once

#include "backends/support/os/fd.h"

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace dtrain::ssh {

/// What a host said of itself.
struct HostFacts {
  std::vector<std::string> lacks; ///< "the command setsid": why it cannot be used.
  std::vector<std::string> wants; ///< Of its cargo, what it is to be sent.
  std::string address;            ///< Its own, that ranks elsewhere reach it at.
  std::string sshd;               ///< The port that ssh came in at.
  std::string machine;            ///< No other's that has a network of its own.
  std::string gpus;               ///< That it has set aside, as CUDA_VISIBLE_DEVICES has them.
  std::int64_t ahead = 0;         ///< Its clock, of ours, in seconds.
  std::set<int> ports;            ///< That somebody listens on.
};

/// What to ask of a host.
struct HostQuestion {
  std::string folder;    ///< Where the rank will start; of the job's there, where it is relative.
  std::string program;   ///< That it will run.
  std::string path;      ///< Its PATH; empty: the host's.
  std::string run;       ///< A folder for the job, that is made.
  std::string interface; ///< Whose address to give; empty: of the connection.
  std::size_t number;    ///< The host's own, of the job's.
  int gpus;              ///< To be set aside for the rank.
  int slots;             ///< That the user gave the host; 0: not said.
  int wanted;            ///< Of them, by the job's ranks there.
  std::string parcel;    ///< The digest of the folder that has the program; empty: none.
  std::string parts;     ///< The digests of the code's parts.
  std::string cargo;     ///< Digests that it is to have.
  std::string data;      ///< Folders that it is to have, a line each.
  bool later;            ///< It looks for the program when it is asked to, once those are there.
};

/// `command` for a host's sh, with what ssh needs to fail instead of asking, and to notice a host
/// that is gone. A connection of its own, whatever the user's ssh_config shares or forwards: the
/// end of one that is shared is not seen while others use it, and a port can be forwarded but once.
/// `log`: where ssh writes what it has to say; empty: its stderr.
std::vector<std::string> ssh_command(const std::string& host, const std::string& log,
                                     const std::string& command);

/// One line of what ssh said, and what to do about it.
std::string explain_loss(const std::string& host, std::string_view said);

class Link {
 public:
  using Clock = std::chrono::steady_clock;

  Link(std::string host, const HostQuestion& question);
  ~Link();
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  const std::string& host() const { return host_; }
  const std::string& id() const { return id_; }
  pid_t pid() const { return pid_; }
  Clock::time_point asked() const { return asked_; } ///< The last time.

  /// True once the host has said all; facts() are there.
  bool is_ready() const { return ready_; }

  /// Has it say more, by commands of host.sh's: it is ready again when it has.
  void ask(std::string_view commands);
  const HostFacts& facts() const { return facts_; }

  /// Reads what there is of its answer, and no byte more. False at the end of its output.
  bool read_answer();

  /// Sends a text, as far as the connection takes it now; the rest waits for flush().
  void send(std::string_view text);
  bool flush(); ///< False where the connection is closed.
  bool has_unsent() const { return !unsent_.empty(); }

  int in() const { return in_.get(); }
  int out() const { return out_.get(); }
  Fd take_out() { return std::move(out_); }
  Fd take_err() { return std::move(err_); }

  /// Why ssh has ended, or why the host was of no use; to be asked once.
  std::string loss();

  /// As it was a loss: whether it is connected to once more, in a while (turned_away.h).
  bool tries_again();

  void forget_process() { pid_ = 0; } ///< Somebody has waited for it.

  std::optional<Clock::time_point> killed; ///< When its rank was sent SIGKILL.

 private:
  void open();
  void end_process();
  bool is_paused();
  void take_line(const std::string& line);

  std::string host_;
  std::string id_; ///< No other connection's, ever.
  std::string script_;
  int tries_ = 0;
  bool turned_away_ = false;
  Clock::time_point opens_; ///< Of one that pauses.
  Clock::time_point asked_ = Clock::now();
  pid_t pid_ = 0; ///< Of ssh; 0: it has ended and was waited for.
  Fd in_;
  Fd out_;
  Fd err_;
  Fd log_;     ///< What ssh says …
  Fd log_end_; ///< … here, by its path in /proc.
  std::string unsent_;
  std::string line_;
  bool greeted_ = false;
  bool ready_ = false;
  HostFacts facts_;
};

} // namespace dtrain::ssh
