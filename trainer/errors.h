// The trainer's errors. A message is one line: what is wrong, where, what to do.
#pragma once

#include <stdexcept>
#include <string>

namespace trainer {

struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A flag or an environment variable is wrong: exit 2.
struct UsageError : Error {
  using Error::Error;
};

/// TF_CONFIG, RANK and the like contradict each other or the machine: exit 2.
struct ClusterError : UsageError {
  using UsageError::UsageError;
};

/// A data file or checkpoint is damaged, or not what it should be: exit 1.
struct DataError : Error {
  using Error::Error;
};

/// A peer died, hung or was cut off; names rank, host and last step: exit 1.
struct PeerError : Error {
  using Error::Error;
};

} // namespace trainer
