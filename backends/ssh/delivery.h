// Sends a host what it lacks of a job's cargo: tar here, and an ssh of its own to
// templates/ssh/receive.sh there.
#pragma once

#include "backends/ssh/cargo.h"
#include "backends/ssh/turned_away.h"
#include "backends/support/os/fd.h"

#include <sys/types.h>

#include <string>
#include <vector>

namespace dtrain::ssh {

class Delivery {
 public:
  Delivery(std::string host, const Cargo& cargo, const std::vector<std::string>& digests);
  ~Delivery();
  Delivery(const Delivery&) = delete;
  Delivery& operator=(const Delivery&) = delete;

  const std::string& host() const { return host_; }

  /// What is to be read until it is at its end.
  int out() const { return said_.get(); }

  /// True once it has ended, well or not.
  bool advance();

  /// Why it failed; empty: it did not. Of one that has ended.
  std::string failure();

  /// It failed, but may not once more (turned_away.h).
  bool was_turned_away() const { return is_turned_away(text_); }

 private:
  std::string host_;
  pid_t tar_ = 0;
  pid_t ssh_ = 0;
  Fd said_;
  std::string text_;
};

} // namespace dtrain::ssh
