// The one connection to a host of a job: an ssh to an agent there (templates/ssh/agent.sh), which
// starts ranks, forwards their output and ends them.
//
// Commands go over ssh's stdin, so that they appear in no process list. Nothing here blocks:
// flush() sends what the connection did not take, and a host's output is read when out() is
// readable.
#pragma once

#include "backends/ssh/agent_frames.h"
#include "backends/support/os/fd.h"

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace dtrain::ssh {

struct AgentSetting {
  std::string job;        ///< The job's uid: its folder there is named by it, …
  std::size_t number = 0; ///< … and by this, the host's own of the job's.
  /// The agent ends everything that long after the last heartbeat.
  std::chrono::seconds host_timeout;
  int grace_ms = 0;                           ///< Between TERM and KILL then.
  std::vector<std::string> gpus = {};         ///< GPUs that ranks may have; empty: all …
  std::vector<std::string> without_gpus = {}; ///< … but these.
};

class Connection {
 public:
  using Clock = std::chrono::steady_clock;

  /// A host that has said nothing for that long is suspect: it was asked in the meantime.
  static constexpr std::chrono::seconds k_suspect{8};

  /// The words that have the host's login shell run a command, with ssh's own words in a file.
  using Connect = std::function<std::vector<std::string>(
      const std::string& host, const std::string& log, const std::string& command)>;

  Connection(std::string host, const AgentSetting& setting, const Connect& connect);
  /// Closes it; the agent then ends its ranks.
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  const std::string& host() const { return host_; }
  /// The word that marks this connection; the agent's ranks have it in their environment.
  const std::string& word() const { return word_; }
  pid_t pid() const { return pid_; }
  int in() const { return in_.get(); }
  int out() const { return out_.get(); }

  /// The agent is there.
  bool is_open() const { return frames_.greeted(); }

  /// Reads available bytes and delivers complete frames. Returns false at the end of the
  /// connection. Throws EngineError as FrameReader does.
  bool receive(const FrameReader::Take& take);

  /// Whatever came last of it: output is a sign of life too.
  Clock::time_point heard() const { return heard_; }
  bool is_suspect(Clock::time_point now) const { return now - heard_ >= k_suspect; }
  /// Discounts a time in which this process did not listen.
  void forgive(Clock::duration time) { heard_ += time; }

  /// `script`, for sh, defines begin(), which becomes the rank; `key` is no other's, and not 0.
  void start(RankId key, std::string_view script) { request("start", key, script); }
  /// The same for a script beside the ranks.
  void run(RankId key, std::string_view script) { request("run", key, script); }
  /// Has so many GPUs be the rank's, before it is started; the answer says which. None of `but`,
  /// devices separated by commas.
  void claim(RankId key, int gpus, std::string_view but);
  /// Releases the GPUs of a rank that has ended.
  void free(RankId key);
  void signal(RankId key, int signal);
  void signal_all(int signal);
  /// Sets the contents of the job's host file from now on.
  void show_hosts(std::string_view hostfile) { request("hosts", 0, hostfile); }
  /// Appends to the file that a later request will read.
  void put(std::string_view bytes) { request("put", 0, bytes); }
  /// Sends a heartbeat, unless earlier requests are still waiting to be sent.
  void heartbeat();
  /// Nothing more is sent: the agent ends its ranks, and itself.
  void end();

  bool flush(); ///< False where the connection is closed.
  bool has_unsent() const { return !unsent_.empty(); }

  /// What ssh printed at its end; empty: nothing. To be called once.
  std::string said();

  void forget_process() { pid_ = 0; } ///< Somebody has waited for it.

 private:
  void request(std::string_view word, RankId key, std::string_view script);
  void send(std::string_view text);

  std::string host_;
  std::string word_;
  FrameReader frames_;
  Clock::time_point heard_ = Clock::now();
  pid_t pid_ = 0; ///< Process of ssh; 0: it has ended and was waited for.
  Fd in_;
  Fd out_;
  Fd err_;
  Fd log_;     ///< The output of ssh …
  Fd log_end_; ///< … here, by its path in /proc.
  std::string unsent_;
  std::vector<char> block_;
};

} // namespace dtrain::ssh
