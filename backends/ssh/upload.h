// Sends a host what it lacks of a job's payload, over its connection: what tar gives here, block by
// block as the connection takes it, then templates/ssh/receive.sh there.
#pragma once

#include "backends/ssh/connections.h"
#include "backends/ssh/payload.h"
#include "backends/support/os/fd.h"

#include <sys/types.h>

#include <cstddef>
#include <string>
#include <vector>

namespace dtrain::ssh {

class Upload {
 public:
  Upload(Connections& connections, std::string host, const Payload& payload,
         const std::vector<std::string>& digests);
  /// Also ends the connection of an unfinished upload, as half a file is there.
  ~Upload();
  Upload(const Upload&) = delete;
  Upload& operator=(const Upload&) = delete;

  const std::string& host() const { return host_; }

  /// The descriptor to read next; -1: events of the connection drive it.
  int out() const;

  /// True once it has ended, well or not.
  bool advance() { return has_ended_ = go_on(); }

  /// Why it failed; empty: it did not. Of one that has ended.
  const std::string& failure() const { return failure_; }

 private:
  bool go_on();
  bool fail(const std::string& why);
  bool finish_archive();

  Connections& connections_;
  std::string host_;
  pid_t tar_ = 0;
  Fd archive_;
  Fd said_; ///< Messages of tar.
  std::size_t sent_ = 0;
  RankId asked_ = 0; ///< The request to keep the file; 0: not sent yet.
  bool has_ended_ = false;
  std::string failure_;
  std::vector<char> block_;
};

} // namespace dtrain::ssh
