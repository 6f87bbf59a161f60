#include "backends/ssh/delivery.h"

#include "backends/ssh/link.h"
#include "backends/ssh/login_line.h"
#include "backends/support/os/pipe.h"
#include "backends/support/os/spawn.h"
#include "submit/template/render.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <utility>

namespace dtrain::ssh {

namespace {

constexpr std::size_t k_most_said = 65536;

} // namespace

Delivery::Delivery(std::string host, const Cargo& cargo, const std::vector<std::string>& digests)
    : host_(std::move(host)) {
  auto archive = make_pipe();
  auto said = make_pipe();
  std::vector<std::string> tar{"tar", "-c", "-f", "-", "--"};
  tar.insert(tar.end(), digests.begin(), digests.end());
  // Whatever the job's folder is called by now.
  tar_ = spawn({.argv = tar,
                .folder = fmt::format("/proc/{}/fd/{}", getpid(), cargo.folder.get()),
                .in = said.read_end.get(), // It reads nothing.
                .out = archive.write_end.get(),
                .err = said.write_end.get(),
                .leads_group = true});
  ssh_ =
      spawn({.argv = ssh_command(host_, "",
                                 login_line(std::string(builtin_template("ssh/sums.sh").text) +
                                            std::string(builtin_template("ssh/receive.sh").text))),
             .in = archive.read_end.get(),
             .out = said.write_end.get(),
             .err = said.write_end.get(),
             .leads_group = true});
  said_ = std::move(said.read_end);
  make_non_blocking(said_);
}

Delivery::~Delivery() {
  for (const auto pid : {tar_, ssh_}) {
    if (pid != 0) {
      kill(-pid, SIGKILL);
      wait_for_child(pid);
    }
  }
}

bool Delivery::advance() {
  std::array<char, 4096> block{};
  ssize_t count = 0;
  while ((count = read(said_.get(), block.data(), block.size())) > 0) {
    text_.append(block.data(), static_cast<std::size_t>(count));
    if (text_.size() > k_most_said) {
      text_.erase(0, text_.size() - k_most_said);
    }
  }
  return count == 0;
}

std::string Delivery::failure() {
  const int sent = wait_for_child(std::exchange(ssh_, 0));
  const int packed = wait_for_child(std::exchange(tar_, 0));
  if (sent == 0 && packed == 0) {
    return "";
  }
  const auto why = explain_loss(host_, text_);
  return "cannot be sent the program or the code: " + (why.empty() ? "no reason is given" : why);
}

} // namespace dtrain::ssh
