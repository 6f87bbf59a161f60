#include "backends/slurm/far_files.h"

#include "submit/errors.h"
#include "submit/template/render.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>

namespace dtrain::slurm {
namespace {

/// What is asked for at a time: a line each, which must fit into a socket's buffer together.
constexpr std::size_t k_most_asked = 64;

Command fed_command(const Login& login, const std::string& folder) {
  Command command =
      login.command(std::string(builtin_template("slurm/commands/logs.sh").text), {folder});
  command.is_fed = true;
  return command;
}

} // namespace

FarFiles::FarFiles(const Login& login, const std::string& folder)
    : program_(fed_command(login, folder)), place_(login.place()) {}

std::vector<std::int64_t> FarFiles::sizes(const std::vector<std::string>& names) {
  std::map<std::string, std::int64_t, std::less<>> found;
  for (std::size_t begin = 0; begin < names.size(); begin += k_most_asked) {
    const auto end = std::min(begin + k_most_asked, names.size());
    program_.feed(fmt::format("sizes {}\n",
                              fmt::join(names.begin() + static_cast<std::ptrdiff_t>(begin),
                                        names.begin() + static_cast<std::ptrdiff_t>(end), " ")));
    for (auto line = receive_line(); !line.empty(); line = receive_line()) {
      std::int64_t size = 0;
      const auto space = std::min(line.find(' '), line.size() - 1);
      std::from_chars(line.data(), line.data() + space, size);
      found[line.substr(space + 1)] = size;
    }
  }
  std::vector<std::int64_t> sizes;
  for (const std::string& name : names) {
    const auto each = found.find(name);
    sizes.push_back(each == found.end() ? -1 : each->second);
  }
  return sizes;
}

std::vector<std::string> FarFiles::read(const std::vector<Piece>& pieces) {
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

std::string FarFiles::receive(std::size_t size) {
  while (buffer_.size() < size) {
    fill();
  }
  std::string bytes = buffer_.substr(0, size);
  buffer_.erase(0, size);
  return bytes;
}

std::string FarFiles::receive_line() {
  std::size_t end = 0;
  while ((end = buffer_.find('\n')) == std::string::npos) {
    fill();
  }
  std::string line = receive(end + 1);
  line.pop_back();
  return line;
}

void FarFiles::fill() {
  const auto some = program_.read_some();
  if (some.empty()) {
    program_.wait();
    const std::string& said = program_.errors();
    throw EngineError(fmt::format("the job's files cannot be read{}: {}", place_,
                                  printable(said.substr(0, said.find('\n')))));
  }
  buffer_ += some;
}

} // namespace dtrain::slurm
