// The log's lines as comma-separated values, for a spreadsheet or pandas.
#pragma once

#include <cstdint>
#include <string>

#include "trainer/monitor/metrics.h"

namespace trainer {

class CsvLog {
 public:
  /// Appends to `path`, whose first line names the columns. Throws Error.
  explicit CsvLog(std::string path);
  ~CsvLog();
  CsvLog(const CsvLog&) = delete;
  CsvLog& operator=(const CsvLog&) = delete;

  /// Written at once, whole. Throws Error where the disk is full.
  void line(const LogLine& line);

  /// Takes out the lines of later steps, which are done again.
  void forget_after(std::int64_t step) const;

  /// During its lifetime no other process has the file locked, so that the last line cannot change
  /// before the next one is written. A process that was stopped while holding the lock is waited
  /// for only briefly.
  class Lock {
   public:
    explicit Lock(const CsvLog& log);
    ~Lock();
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;

   private:
    int file_;
  };

  /// Step of the last line, which another process may have written; -1: no line.
  std::int64_t last_step() const;

 private:
  void write(const std::string& text) const;

  std::string path_;
  int file_ = -1;
};

} // namespace trainer
