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
    std::int64_t size = -1; ///< In bytes; -1: it is not there.
    Time written = 0;       ///< The last time.
  };

  std::vector<State> look(const std::vector<std::string>& names);

  /// Their bytes, in order. Several are asked for at a time, so that what is far away is not waited
  /// for once for each. Throws EngineError where one cannot be read.
  std::vector<std::string> read(const std::vector<Piece>& pieces);

 private:
  std::string receive(std::size_t size);
  std::string receive_line();
  void fill();

  Subprocess program_;
  std::string place_;
  std::string buffer_; ///< What came and was not taken yet.
};

} // namespace dtrain::batch
