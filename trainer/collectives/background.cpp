#include "trainer/collectives/background.h"

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

namespace trainer {
namespace {

class Background final : public Transport {
 public:
  explicit Background(std::unique_ptr<Carrier> carrier)
      : carrier_(std::move(carrier)), thread_([this] { run(); }) {}

  ~Background() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    has_work_.notify_one();
    thread_.join();
  }
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  std::string describe() const override { return carrier_->describe(); }
  Route route(std::size_t bytes, WireType wire) const override {
    return carrier_->route(bytes, wire);
  }

  std::span<float> allocate(std::size_t count) override {
    if (started_ > 0) {
      finish(started_ - 1);
    }
    return carrier_->allocate(count); // The thread is idle: nothing is queued.
  }

  std::uint64_t start(Collective collective) override {
    {
      const std::lock_guard lock(mutex_);
      queue_.push_back(std::move(collective));
    }
    has_work_.notify_one();
    return started_++;
  }

  void finish(std::uint64_t number) override {
    std::unique_lock lock(mutex_);
    while (done_ <= number) {
      if (failure_) {
        std::rethrow_exception(failure_);
      }
      if (is_busy_) {
        has_progress_.wait(lock);
      } else {
        carry_out_next(lock);
      }
    }
    if (!queue_.empty()) {
      has_work_.notify_one(); // It slept while the caller carried out its own.
    }
  }

  void carry_out(Collective collective) override {
    std::unique_lock lock(mutex_);
    queue_.push_back(std::move(collective));
    const std::uint64_t number = started_++;
    lock.unlock();
    finish(number); // The thread was not woken: it finds it only if it is at work anyway.
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      has_work_.wait(lock, [this] { return stopping_ || (!queue_.empty() && !is_busy_); });
      if (stopping_) {
        return;
      }
      carry_out_next(lock);
    }
  }

  /// The queue is not empty, and no thread works on it.
  void carry_out_next(std::unique_lock<std::mutex>& lock) {
    const Collective next = std::move(queue_.front());
    queue_.pop_front();
    is_busy_ = true;
    lock.unlock();
    std::exception_ptr failure;
    try {
      carrier_->carry_out(next);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    is_busy_ = false;
    if (failure) {
      failure_ = failure;
      queue_.clear();
    } else {
      ++done_;
    }
    has_progress_.notify_one();
  }

  std::unique_ptr<Carrier> carrier_; ///< Used by the one that has set is_busy_.
  std::uint64_t started_ = 0;        ///< Used by the caller's thread only.

  std::mutex mutex_; ///< Guards what follows.
  std::condition_variable has_work_;
  std::condition_variable has_progress_;
  std::deque<Collective> queue_; ///< From collective done_ on, except the one being carried out.
  std::uint64_t done_ = 0;
  bool is_busy_ = false;
  bool stopping_ = false;
  std::exception_ptr failure_;

  std::thread thread_;
};

} // namespace

std::unique_ptr<Transport> make_background(std::unique_ptr<Carrier> carrier) {
  return std::make_unique<Background>(std::move(carrier));
}

} // namespace trainer
