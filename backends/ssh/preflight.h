// Checks whether a job's hosts can run it, many at once, over the connections that its ranks will
// use; opens those that are missing.
//
//   1  each host reports its facts, and claims GPUs for its ranks, none that is faulty; its address
//      must be one at which other hosts reach it, and only it
//   2  the parts of the payload that a host lacks are sent to it (upload.h)
//   3  each unpacks the code, measures its GPUs if asked to, and tries to connect to other hosts; a
//      launcher's host, by ssh
//   4  with code and trainer in place, each looks for its programs
//
// This starts no rank.
#pragma once

#include "backends/local/gpu_health.h"
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

/// An instance with a faulty GPU for which its host has no other.
struct FaultyPlace {
  std::string host;
  std::string faults;
  std::string lack; ///< What the host has too few of.
};

/// Names each unusable host, with the reason.
struct UnusableHosts : EngineError {
  UnusableHosts(const std::string& what, std::set<std::string> hosts,
                std::map<std::string, FaultyPlace> instances)
      : EngineError(what), names(std::move(hosts)), faulty(std::move(instances)) {}
  std::set<std::string> names;               ///< Those that no rank can be on.
  std::map<std::string, FaultyPlace> faulty; ///< Keyed by instance: the others can be there.
};

/// The questions to a host.
struct HostQuestion {
  HostSlots host;
  std::size_t number = 0; ///< Its number within the job.
  std::string folder;     ///< Where ranks start; relative paths are within the job's folder there.
  std::vector<std::string> programs; ///< Programs that the ranks run, to be found by the host.
  bool runs_bundle = false;          ///< Whether they run the trainer of the payload.
  std::string path;                  ///< PATH of the ranks; empty: the host's.
  std::string interface;             ///< Whose address to give; empty: of the connection.
  std::vector<std::string> data;     ///< Data that must be there.
  int wanted = 0;                    ///< GPUs wanted by the job's ranks there.
  std::vector<std::pair<std::string, int>> gpus; ///< GPUs to claim: instances, and how many each.
  std::vector<std::string> checked; ///< Instances that are to have no GPU that is faulty.
  bool measures = false;            ///< Their GPUs are measured, too.
};

/// The GPUs that a host has claimed for an instance.
struct DeviceClaim {
  std::string host;
  RankId key = 0; ///< Key by which the claim is released.
  int gpus = 0;
  std::string devices; ///< As in CUDA_VISIBLE_DEVICES.
};

/// What is known about the job's hosts.
struct HostsKnown {
  std::map<std::string, HostFacts> facts;    ///< Keyed by host.
  std::map<std::string, DeviceClaim> claims; ///< Keyed by instance.
  std::vector<std::string> left_out;         ///< Faulty GPUs, not yet reported.

  void tell(const std::string& what); ///< Once, however often it is found.
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

  /// Checks only that no GPU of an instance in `checked` is faulty. Throws as run().
  void check_gpus(const HostQuestion& question);

 private:
  static constexpr std::chrono::seconds k_answer_timeout{20};

  /// What a host is to run, of these lines.
  std::string script_of(const HostQuestion& question, const std::string& lines) const;
  void ask_health(const HostQuestion& question);
  /// The faults of a host's GPUs.
  struct HostFaults {
    std::function<std::string(const std::string& device)> of; ///< Empty: none.
    std::string all;     ///< Names of the faulty devices, with a comma behind each.
    std::string failure; ///< Why nothing is known of a device: then the host is refused for it.
  };
  void leave_out_faulty(const std::vector<HostQuestion>& questions);
  void leave_out_measured(const std::vector<HostQuestion>& questions);
  bool replace_faulty(const std::vector<HostQuestion>& questions,
                      const std::map<std::string, HostFaults>& faults);
  bool is_good() const { return reasons_.empty() && faulty_.empty(); }
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
  std::set<RankId> asked_;                     ///< Requests not answered yet.
  std::map<std::string, std::string> reasons_; ///< Keyed by host.
  std::map<std::string, FaultyPlace> faulty_;  ///< Keyed by instance.
  std::map<std::string, RankId> health_;       ///< Keyed by host; requested checks.
  std::map<std::string, GpuHealth> found_;     ///< The answers.
};

} // namespace dtrain::ssh
