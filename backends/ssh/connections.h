// All connections of a job to its hosts, one each: reads and writes them, keeps them alive, detects
// lost ones, and holds requests until they are answered.
//
// Nothing here blocks except wait() and close(). A host that has been silent for 8 s is suspect,
// and lost after the host timeout; it is lost at once if its ssh ends.
//
// The process must have SIGCHLD blocked.
#pragma once

#include "backends/ssh/connection.h"
#include "backends/support/os/fd.h"

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace dtrain::ssh {

class Connections {
 public:
  using Clock = Connection::Clock;
  static constexpr std::chrono::seconds k_host_timeout{60}; ///< The default.

  /// Receives what a host reports about a rank.
  using TakeFrame = std::function<void(const AgentFrame&)>;
  /// A host is lost, and why.
  using Lose = std::function<void(const std::string& host, const std::string& why)>;

  Connections(std::string job_uid, TakeFrame take, Lose lose);
  Connections(const Connections&) = delete;
  Connections& operator=(const Connections&) = delete;

  /// For connections opened from here on.
  void set_limits(std::chrono::milliseconds host_timeout, int grace_ms);

  /// `number`: the host's own of the job's.
  void open(const HostSlots& host, std::size_t number);
  /// Null if there is none, or none any more.
  Connection* find(const std::string& host);
  /// Why the last one to the host was lost, and what ssh said then.
  struct Loss {
    std::string why;
    std::string said;
  };
  const Loss* loss(const std::string& host) const;
  /// Gives it up. Its ranks end there by themselves.
  void drop(const std::string& host, const std::string& why);

  /// A key, unique within the job, that identifies a request or a rank.
  RankId new_key() { return ++last_key_; }

  /// The answer of a host to a request. A lost host counts as an answer, with the reason.
  struct Answer {
    std::string host;
    std::string text; ///< Its output; for a claim, the GPUs.
    std::string errors;
    std::string failure; ///< Why there is no answer; empty: there is one.
    bool is_there = false;
  };
  /// `script` defines begin(), as a rank's.
  RankId ask(const std::string& host, std::string_view script);
  RankId claim(const std::string& host, int gpus, std::string_view but = {});
  /// False where it is not there yet.
  bool is_answered(RankId key) const { return answers_.at(key).is_there; }
  Answer take_answer(RankId key);
  /// Nobody waits for it any more. GPUs are given back.
  void forget(RankId key);

  /// Can be read when advance() has something to do.
  int events() const { return events_.get(); }
  /// Has events() tell of somebody else's descriptor, too; until it is closed, or ignored.
  void watch(int fd, unsigned events);
  void ignore(int fd);
  /// Reads and sends what it can without blocking.
  void advance();
  /// The same, but waits until there is something to do, or that time is over.
  void wait(std::chrono::milliseconds most);

  /// Hosts that have been silent for a while.
  std::set<std::string> suspects() const;

  /// Closes all, and waits a moment for the agents to have tidied up.
  void close();

 private:
  struct Kept {
    std::unique_ptr<Connection> connection;
    bool at_end = false;       ///< Nothing more comes.
    std::optional<int> status; ///< Of its ssh, which has ended.
    Clock::time_point ended;   ///< The first of both.
    std::string failure;       ///< In its output.
  };

  bool read_some(Kept& kept);
  void take(const std::string& host, const AgentFrame& frame);
  void reap(Kept& kept);
  std::optional<Loss> loss_of(const std::string& host, Kept& kept) const;
  void lose(const std::string& host, Loss loss);
  void send_heartbeats();

  std::string job_uid_;
  TakeFrame take_;
  Lose lose_;
  std::chrono::milliseconds host_timeout_{k_host_timeout};
  int grace_ms_ = 0;
  std::map<std::string, Kept> kept_; ///< Keyed by host.
  std::map<std::string, Loss> losses_;
  std::map<std::string, std::string> lacks_; ///< Why a host cannot be used, as its agent says.
  std::map<RankId, Answer> answers_;
  RankId last_key_ = 0;
  Clock::time_point advanced_ = Clock::now();
  Fd children_; ///< SIGCHLD, as a descriptor.
  Fd timer_;    ///< Timer of heartbeats.
  Fd events_;   ///< Epoll of all of them.
};

} // namespace dtrain::ssh
