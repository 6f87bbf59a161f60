// A job's files, read a piece at a time from where they are: this machine, or the login host.
#pragma once

#include "backends/batch/login.h"
#include "backends/job_status.h"

#include <cstdint>
#include <string>
#include <vector>

namespace dtrain::batch {

class JobFiles {
 public:
  struct Piece {
    std::string name; ///< Below the folder; no blanks.
    std::int64_t from = 0;
    std::int64_t size = 0; ///< No more than the file has.
  };

  JobFiles(const Login& login, const std::string& folder);

  struct State {
    std::int64_t size = -1; ///< In bytes; -1: it does not exist.
    Time written = 0;       ///< The last time.
  };

  std::vector<State> look(const std::vector<std::string>& names);

  /// Contents of the pieces, in order. Several are requested at a time, so that a distant login
  /// node costs one round trip, not one for each. Throws EngineError if one cannot be read.
  std::vector<std::string> read(const std::vector<Piece>& pieces);

 private:
  std::string receive(std::size_t size);
  std::string receive_line();
  void fill();

  Subprocess program_;
  std::string place_;
  std::string buffer_; ///< Bytes that have arrived and not been taken yet.
};

} // namespace dtrain::batch
