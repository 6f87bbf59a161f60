// Leaving a job to itself: while a command only watches, Ctrl-C, a TERM signal or a deadline ends
// the command with one line on stderr, and never the job.
#pragma once

#include "submit/errors.h"

#include <chrono>
#include <string>

namespace dtrain {

/// During its lifetime SIGINT writes `farewell` and exits with 130, and SIGTERM exits with 143. A
/// signal that was ignored at start (nohup) stays ignored. At most one at a time.
class DetachOnInterrupt {
 public:
  explicit DetachOnInterrupt(std::string farewell);
  ~DetachOnInterrupt();
  DetachOnInterrupt(const DetachOnInterrupt&) = delete;
  DetachOnInterrupt& operator=(const DetachOnInterrupt&) = delete;
};

/// During its lifetime SIGINT and SIGTERM are only recorded, so that work can be undone first. At
/// most one at a time, and none beside a DetachOnInterrupt.
class NoteInterrupt {
 public:
  NoteInterrupt();
  ~NoteInterrupt();
  NoteInterrupt(const NoteInterrupt&) = delete;
  NoteInterrupt& operator=(const NoteInterrupt&) = delete;

  /// The first that came; 0: none.
  int signal() const;
};

/// During its lifetime, when `after` has passed, writes `message` and exits with 124. Does nothing
/// for 0.
class Deadline {
 public:
  Deadline(std::chrono::nanoseconds after, std::string message);
  ~Deadline();
  Deadline(const Deadline&) = delete;
  Deadline& operator=(const Deadline&) = delete;
};

} // namespace dtrain
