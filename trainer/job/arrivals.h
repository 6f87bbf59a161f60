// Lets workers in at a parameter server or coordinator: a thread that shakes hands, so that a
// silent or foreign connection delays no update, and hands on the connections of those that hold
// the job's token.
#pragma once

#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include "trainer/job/handshake.h"

namespace trainer {

class Arrivals {
 public:
  Arrivals(Fd listener, std::string token, LinkPurpose purpose);
  ~Arrivals();
  Arrivals(const Arrivals&) = delete;
  Arrivals& operator=(const Arrivals&) = delete;

  /// Readable when there are some, or after wake().
  int fd() const noexcept { return wake_.get(); }
  std::vector<Acceptor::Arrival> take();
  void wake() noexcept;

  /// What was turned away so far, as Acceptor::refusals() says it.
  std::string refusals() const;

 private:
  void run(Fd listener, std::string token, LinkPurpose purpose);

  Fd wake_;
  std::atomic<bool> stop_{false};
  mutable std::mutex mutex_; ///< Guards the next two.
  std::vector<Acceptor::Arrival> arrived_;
  std::string refusals_;
  std::thread thread_;
};

} // namespace trainer
