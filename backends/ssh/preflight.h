// Finds out whether a job's hosts can run it, many at once, over the connections that its ranks
// will have; opens those that are not there.
//
//   1  each host says what it has, and sets GPUs aside for its ranks, none that is faulty; its
//      address has to be one at which others reach it, and nobody else
//   2  what a host lacks of the payload goes to it (upload.h)
//   3  each unpacks the code, and tries the way to other hosts; a launcher's host, by ssh
//   4  with code or trainer there by now, each looks for its programs
//
// Nothing is started by it.
#pragma once

#include "backends/ssh/connections.h"
#include "backends/ssh/host_facts.h"
#include "backends/ssh/payload.h"
#include "submit/errors.h"

#include <chrono>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace dtrain::ssh {

/// Says what is wrong on each.
struct UnusableHosts : EngineError {
  UnusableHosts(const std::string& what, std::set<std::string> hosts)
      : EngineError(what), names(std::move(hosts)) {}
  std::set<std::string> names;
};

/// What is asked of a host.
struct HostQuestion {
  HostSlots host;
  std::size_t number = 0;            ///< Its own of the job's.
  std::string folder;                ///< Where ranks start; of the job's there, where relative.
  std::vector<std::string> programs; ///< That they run, as the host finds them.
  bool runs_bundle = false;          ///< They run the trainer that it is sent.
  std::string path;                  ///< Their PATH; empty: the host's.
  std::string interface;             ///< Whose address to give; empty: of the connection.
  std::vector<std::string> data;     ///< That it is to have.
  int wanted = 0;                    ///< Of them, by the job's ranks there.
  std::vector<std::pair<std::string, int>> gpus; ///< To set aside: instances, and how many.
  std::vector<std::string> checked; ///< Instances that are to have no GPU that is faulty.
};

/// What a host has set aside for an instance.
struct DeviceClaim {
  std::string host;
  RankId key = 0; ///< By which it is given back.
  int gpus = 0;
  std::string devices; ///< As CUDA_VISIBLE_DEVICES has them.
};

/// What is known of the job's hosts.
struct HostsKnown {
  std::map<std::string, HostFacts> facts;    ///< By host.
  std::map<std::string, DeviceClaim> claims; ///< By instance.
  std::string left_out;                      ///< Faulty GPUs, not yet reported.
};

class Preflight {
 public:
  /// `launches`: the first host starts what runs on the others, by ssh. `stops`: as of
  /// Channel::on_wait.
  Preflight(Connections& connections, const Payload& payload, bool launches, HostsKnown& known,
            const std::function<bool()>& stops)
      : connections_(connections), payload_(payload), launches_(launches), known_(known),
        stops_(stops) {}
  ~Preflight();
  Preflight(const Preflight&) = delete;
  Preflight& operator=(const Preflight&) = delete;

  /// Throws UnusableHosts with all that is wrong on any host; WaitStopped, too.
  void run(const std::vector<HostQuestion>& questions);

  /// That alone of it: no GPU of an instance that is to be `checked` is faulty. Throws as run().
  void check_gpus(const HostQuestion& question);

 private:
  void ask_health(const HostQuestion& question);
  void leave_out_faulty(const std::vector<HostQuestion>& questions);
  void await(const std::vector<RankId>& keys, std::chrono::seconds timeout);
  void survey(const std::vector<HostQuestion>& questions);
  void compare(const std::vector<HostQuestion>& questions);
  void upload(const std::vector<HostQuestion>& questions);
  void try_ways(const std::vector<HostQuestion>& questions);
  RankId expect(RankId key);
  bool is_answered(RankId key) const { return connections_.is_answered(key); }
  Connections::Answer take_answer(RankId key);
  void wait(std::chrono::milliseconds most, const std::vector<int>& others = {});
  void ask_all(const std::vector<std::pair<std::string, std::string>>& scripts,
               std::chrono::seconds timeout);
  void refuse_bad(std::size_t hosts) const;

  Connections& connections_;
  const Payload& payload_;
  bool launches_;
  HostsKnown& known_;
  const std::function<bool()>& stops_;
  std::set<RankId> asked_;                     ///< And not answered yet.
  std::map<std::string, std::string> reasons_; ///< By host.
  std::map<std::string, RankId> health_;       ///< By host; asked for.
};

} // namespace dtrain::ssh
