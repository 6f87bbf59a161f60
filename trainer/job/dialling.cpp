#include "trainer/job/dialling.h"

#include <algorithm>
#include <charconv>
#include <thread>

#include <fmt/format.h>

namespace trainer {
namespace {

constexpr double k_first_redial_seconds = 0.002;
constexpr double k_longest_redial_seconds = 0.1;
constexpr int k_most_port = 65535;

} // namespace

TaskAddress TaskAddress::parse(const std::string& text, const std::string& what) {
  TaskAddress address;
  const std::size_t colon = text.rfind(':');
  const char* end = text.data() + text.size();
  const bool has_port = colon != std::string::npos && colon > 0;
  const auto [stop, error] =
      std::from_chars(has_port ? text.data() + colon + 1 : end, end, address.port);
  if (!has_port || error != std::errc() || stop != end || address.port < 1 ||
      address.port > k_most_port) {
    throw UsageError(fmt::format("{}: '{}' is not host:port", what, text));
  }
  address.host = text.substr(0, colon);
  if (address.host.size() > 2 && address.host.front() == '[' && address.host.back() == ']') {
    address.host = address.host.substr(1, address.host.size() - 2);
  }
  return address;
}

Fd listen_as_task(const TaskAddress& address, const std::string& what, double timeout) {
  std::string why = "it has no address";
  for (const Address& one : resolve(address.host, address.port, after_seconds(timeout))) {
    try {
      return listen_at(one);
    } catch (const LinkError& error) {
      why = error.what();
    }
  }
  throw ClusterError(fmt::format("{} cannot listen at {}:{}: {}; give it a free port in TF_CONFIG",
                                 what, address.host, address.port, why));
}

std::optional<std::string> dial_until(const TaskAddress& address, const std::string& token,
                                      const Introduction& self, Deadline deadline,
                                      const std::function<void(Fd)>& meet,
                                      const std::function<void(const std::string&)>& waits) {
  std::string why;
  double pause = k_first_redial_seconds;
  do {
    for (const Address& one : resolve(address.host, address.port, deadline)) {
      try {
        meet(dial_authenticated(one, token, self, deadline));
        return std::nullopt;
      } catch (const LinkError& error) {
        why = fmt::format("{}: {}", one.text(), error.what());
      }
    }
    if (waits) {
      waits(why);
    }
    std::this_thread::sleep_for(std::chrono::duration<double>(pause));
    pause = std::min(2 * pause, k_longest_redial_seconds);
  } while (Clock::now() < deadline);
  return why;
}

} // namespace trainer
