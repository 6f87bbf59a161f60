// The one connection to a host of a job: an ssh whose other end is an agent there
// (templates/ssh/agent.sh), which starts ranks, sends on what they print and ends them.
//
// What runs there goes over ssh's stdin, so that nothing of it is in anybody's list of processes.
// Nothing here waits: what the connection does not take now is sent by flush(), and what a host
// says is read when out() has something to read.
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
  std::string job;                    ///< The job's uid: its folder there is named by it, …
  std::size_t number = 0;             ///< … and by this, the host's own of the job's.
  std::chrono::seconds host_timeout;  ///< It ends all that long after the last heartbeat.
  int grace_ms = 0;                   ///< Between TERM and KILL then.
  std::vector<std::string> gpus = {}; ///< That ranks may have; empty: all …
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
  const std::string& word() const { return word_; } ///< Its own; the agent's ranks have it.
  pid_t pid() const { return pid_; }
  int in() const { return in_.get(); }
  int out() const { return out_.get(); }

  /// The agent is there.
  bool is_open() const { return frames_.greeted(); }

  /// Reads some of what there is, and hands on what is whole. False at the end of the connection.
  /// Throws EngineError as FrameReader does.
  bool receive(const FrameReader::Take& take);

  /// Whatever came last of it: output is a sign of life too.
  Clock::time_point heard() const { return heard_; }
  bool is_suspect(Clock::time_point now) const { return now - heard_ >= k_suspect; }
  /// Of a time in which nobody here listened.
  void forgive(Clock::duration time) { heard_ += time; }

  /// `script`, for sh, defines begin(), which becomes the rank; `key` is no other's, and not 0.
  void start(RankId key, std::string_view script) { request("start", key, script); }
  /// The same of what is asked beside the ranks.
  void run(RankId key, std::string_view script) { request("run", key, script); }
  /// Has so many GPUs be the rank's, before it is started; the answer says which. None of `but`,
  /// devices separated by commas.
  void claim(RankId key, int gpus, std::string_view but);
  /// They are anybody's, of a rank that has ended.
  void free(RankId key);
  void signal(RankId key, int signal);
  void signal_all(int signal);
  /// What the job's host file is to say from now on.
  void show_hosts(std::string_view hostfile) { request("hosts", 0, hostfile); }
  /// More of what a request will find in a file.
  void put(std::string_view bytes) { request("put", 0, bytes); }
  /// That somebody is there; nothing where earlier words still wait to be sent.
  void heartbeat();
  /// Nothing more is sent: the agent ends its ranks, and itself.
  void end();

  bool flush(); ///< False where the connection is closed.
  bool has_unsent() const { return !unsent_.empty(); }

  /// What ssh said of its end; empty: nothing. To be asked once.
  std::string said();

  void forget_process() { pid_ = 0; } ///< Somebody has waited for it.

 private:
  void request(std::string_view word, RankId key, std::string_view script);
  void send(std::string_view text);

  std::string host_;
  std::string word_;
  FrameReader frames_;
  Clock::time_point heard_ = Clock::now();
  pid_t pid_ = 0; ///< Of ssh; 0: it has ended and was waited for.
  Fd in_;
  Fd out_;
  Fd err_;
  Fd log_;     ///< What ssh says …
  Fd log_end_; ///< … here, by its path in /proc.
  std::string unsent_;
  std::vector<char> block_;
};

} // namespace dtrain::ssh
