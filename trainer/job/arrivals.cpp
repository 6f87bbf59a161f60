#include "trainer/job/arrivals.h"

#include <optional>

#include <sys/eventfd.h>
#include <unistd.h>

namespace trainer {
namespace {

constexpr double k_arrival_slice_seconds = 0.05;

}

Arrivals::Arrivals(Fd listener, std::string token, LinkPurpose purpose)
    : wake_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  if (!wake_) {
    throw Error("eventfd: " + error_text(errno));
  }
  thread_ =
      std::thread([this, purpose, at = std::move(listener), secret = std::move(token)]() mutable {
        run(std::move(at), std::move(secret), purpose);
      });
}

Arrivals::~Arrivals() {
  stop_ = true;
  thread_.join();
}

void Arrivals::wake() noexcept {
  const std::uint64_t one = 1;
  (void)!write(wake_.get(), &one, sizeof one);
}

std::vector<Acceptor::Arrival> Arrivals::take() {
  std::uint64_t count = 0;
  (void)!read(wake_.get(), &count, sizeof count);
  const std::lock_guard lock(mutex_);
  return std::exchange(arrived_, {});
}

std::string Arrivals::refusals() const {
  const std::lock_guard lock(mutex_);
  return refusals_;
}

void Arrivals::run(Fd listener, std::string token, LinkPurpose purpose) {
  Acceptor acceptor(std::move(listener), std::move(token), purpose,
                    [](const Introduction&) -> std::optional<std::string> { return std::nullopt; });
  while (!stop_) {
    try {
      auto arrival = acceptor.next(after_seconds(k_arrival_slice_seconds));
      const std::lock_guard lock(mutex_);
      refusals_ = acceptor.refusals();
      if (arrival) {
        arrived_.push_back(std::move(*arrival));
        wake();
      }
    } catch (const Error&) {
      continue; // One connection's trouble; the others are still to be let in.
    }
  }
}

} // namespace trainer
