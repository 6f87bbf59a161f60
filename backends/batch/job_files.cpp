#include "backends/batch/job_files.h"

#include "submit/errors.h"
#include "submit/template/render.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>

namespace dtrain::batch {
namespace {

/// Requests sent at a time, one line each, which must fit into a socket's buffer together.
constexpr std::size_t k_most_asked = 64;

Command fed_command(const Login& login, const std::string& folder) {
  Command command =
      login.command(std::string(builtin_template("batch/commands/logs.sh").text), {folder});
  command.is_fed = true;
  return command;
}

} // namespace

JobFiles::JobFiles(const Login& login, const std::string& folder)
    : program_(fed_command(login, folder)), place_(login.place()) {}

std::vector<JobFiles::State> JobFiles::look(const std::vector<std::string>& names) {
  std::map<std::string, State, std::less<>> found;
  for (std::size_t begin = 0; begin < names.size(); begin += k_most_asked) {
    const auto end = std::min(begin + k_most_asked, names.size());
    program_.feed(fmt::format("sizes {}\n",
                              fmt::join(names.begin() + static_cast<std::ptrdiff_t>(begin),
                                        names.begin() + static_cast<std::ptrdiff_t>(end), " ")));
    for (auto line = receive_line(); !line.empty(); line = receive_line()) {
      State state;
      Time seconds = 0;
      Time rest = 0; // Nine digits.
      const char* const last = line.data() + line.size();
      auto at = std::from_chars(line.data(), last, state.size).ptr;
      at = std::from_chars(std::min(at + 1, last), last, seconds).ptr;
      at = std::from_chars(std::min(at + 1, last), last, rest).ptr;
      state.written = seconds * k_second + rest;
      found[std::string(std::min(at + 1, last), last)] = state;
    }
  }
  std::vector<State> states;
  for (const std::string& name : names) {
    const auto each = found.find(name);
    states.push_back(each == found.end() ? State() : each->second);
  }
  return states;
}

std::vector<std::string> JobFiles::read(const std::vector<Piece>& pieces) {
  std::vector<std::string> texts;
  for (std::size_t begin = 0; begin < pieces.size(); begin += k_most_asked) {
    const auto end = std::min(begin + k_most_asked, pieces.size());
    std::string lines;
    for (std::size_t i = begin; i < end; ++i) {
      if (pieces[i].size > 0) {
        lines += fmt::format("bytes {} {} {}\n", pieces[i].name, pieces[i].from, pieces[i].size);
      }
    }
    program_.feed(lines);
    for (std::size_t i = begin; i < end; ++i) {
      texts.push_back(receive(static_cast<std::size_t>(std::max<std::int64_t>(pieces[i].size, 0))));
    }
  }
  return texts;
}

std::string JobFiles::receive(std::size_t size) {
  while (buffer_.size() < size) {
    fill();
  }
  std::string bytes = buffer_.substr(0, size);
  buffer_.erase(0, size);
  return bytes;
}

std::string JobFiles::receive_line() {
  std::size_t end = 0;
  while ((end = buffer_.find('\n')) == std::string::npos) {
    fill();
  }
  std::string line = receive(end + 1);
  line.pop_back();
  return line;
}

void JobFiles::fill() {
  const auto some = program_.read_some();
  if (some.empty()) {
    program_.wait();
    const std::string& said = program_.errors();
    throw EngineError(fmt::format("the job's files cannot be read{}: {}", place_,
                                  printable(said.substr(0, said.find('\n')))));
  }
  buffer_ += some;
}

} // namespace dtrain::batch
