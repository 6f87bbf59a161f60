// Connects to a job's hosts, many at once, and finds out whether they can run it.
//
//   1  each host says what it has; the GPUs that it sets aside are its rank's as long as it lives;
//      its address has to be one at which others reach it, and nobody else
//   2  what a host lacks of the cargo goes to it (delivery.h)
//   3  the first connection of each host unpacks the code there, and tries the way to other hosts;
//      a launcher's host, by ssh
//   4  with code or trainer there by now, each looks for its program
//
// Nothing is started by it.
#pragma once

#include "backends/ssh/cargo.h"
#include "backends/ssh/link.h"
#include "submit/errors.h"

#include <chrono>
#include <functional>
#include <map>
#include <memory>
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

using Links = std::map<int, std::unique_ptr<Link>>; ///< By rank.

/// A rank's host, and what is asked of it.
struct Wanted {
  int rank;
  std::string host;
  HostQuestion question;
};

class Gathering {
 public:
  /// `launches`: the first rank starts others at the hosts by ssh. `meanwhile` is called every
  /// second or so.
  Gathering(const Cargo& cargo, bool launches, std::function<void()> meanwhile)
      : cargo_(cargo), launches_(launches), meanwhile_(std::move(meanwhile)) {}

  /// Throws UnusableHosts, all connections closed, with all that is wrong on any host.
  Links connect(const std::vector<Wanted>& wanted);

 private:
  void open(const std::vector<Wanted>& wanted, Links& links);
  void compare();
  void await(std::vector<Link*>& asked, std::chrono::seconds patience);
  void deliver();
  std::vector<Link*> deliver_to(const std::vector<Link*>& lacking, bool last);
  void ask_all(const std::vector<Link*>& links, const std::string& commands,
               std::chrono::seconds patience);
  void try_ways();
  void refuse_bad() const;

  const Cargo& cargo_;
  bool launches_;
  std::function<void()> meanwhile_;
  std::map<std::string, Link*> leaders_;       ///< The first connection of each host.
  std::vector<Link*> in_order_;                ///< The same, as the ranks have them.
  std::map<std::string, std::string> reasons_; ///< By host.
};

} // namespace dtrain::ssh
