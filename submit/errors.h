// Errors that a user can meet. Each type has one exit code, mapped once, in cli/main.cpp.
//
// A message is one line: what is wrong, where (flag, file, key), what to do about it. Text quoted
// from outside goes through printable(), so that the message stays one line.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace dtrain {

/// Anything that went wrong and is nobody's bug: exit 1.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The command line, a job file or a setting is wrong: exit 2.
struct UsageError : Error {
  using Error::Error;
};

/// No job, instance or template of that name: exit 3.
struct NotFound : Error {
  using Error::Error;
};

/// The engine (supervisor, cluster, scheduler) cannot be reached or refuses: exit 4.
struct EngineError : Error {
  using Error::Error;
};

/// The job ran and failed, under `wait` or `submit --wait`: exit 100.
struct JobFailed : Error {
  using Error::Error;
};

/// A signal ended the command: exit 128 + signal.
struct Interrupted : Error {
  Interrupted(const std::string& message, int number) : Error(message), signal(number) {}
  int signal;
};

/// `text` with control characters and bytes that are not UTF-8 written as \n, \t or \xHH.
std::string printable(std::string_view text);

} // namespace dtrain
