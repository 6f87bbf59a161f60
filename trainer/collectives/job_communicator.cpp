#include "trainer/collectives/job_communicator.h"

#include <deque>
#include <exception>
#include <utility>

#include <fmt/format.h>

#include "trainer/errors.h"

namespace trainer {
namespace {

class JobCommunicator final : public Communicator {
 public:
  JobCommunicator(int rank, int world_size, std::unique_ptr<Health> health,
                  std::unique_ptr<Transport> transport, std::string description)
      : rank_(rank), world_size_(world_size), health_(std::move(health)),
        transport_(std::move(transport)), description_(std::move(description)),
        exceptions_(std::uncaught_exceptions()) {}

  ~JobCommunicator() override { health_->leave(std::uncaught_exceptions() > exceptions_); }
  JobCommunicator(const JobCommunicator&) = delete;
  JobCommunicator& operator=(const JobCommunicator&) = delete;

  int rank() const noexcept override { return rank_; }
  int world_size() const noexcept override { return world_size_; }
  std::string name(int rank) const override { return health_->name(rank); }
  std::string describe() const override { return description_; }
  Route route(std::size_t bytes, WireType wire) const override {
    return transport_->route(bytes, wire);
  }

  std::span<float> allocate(std::size_t count) override {
    Collective collective;
    collective.kind = Collective::Kind::allocate;
    collective.range = {nullptr, count, DType::f32};
    begin(collective);
    const Stopwatch stopwatch(waited_);
    const auto memory = transport_->allocate(count);
    health_->end(begun_);
    return memory;
  }

  Ticket start(Collective collective) override {
    check_root(collective);
    begin(collective);
    const Ticket ticket = transport_->start(std::move(collective));
    under_way_.emplace_back(ticket, begun_);
    return ticket;
  }

  void wait(Ticket ticket) override {
    const Stopwatch stopwatch(waited_);
    transport_->finish(ticket);
    while (!under_way_.empty() && under_way_.front().first <= ticket) {
      health_->end(under_way_.front().second);
      under_way_.pop_front();
    }
  }

  void carry_out(Collective collective) override {
    check_root(collective);
    begin(collective);
    const Stopwatch stopwatch(waited_);
    transport_->carry_out(std::move(collective));
    health_->end(begun_);
    under_way_.clear(); // They precede it.
  }

  void check() override { health_->check(); }
  std::uint64_t begin_elsewhere(const Collective& collective) override {
    begin(collective);
    return begun_;
  }
  void end_elsewhere(std::uint64_t number) override { health_->end(number); }
  void set_step(std::int64_t step) noexcept override { health_->set_step(step); }
  void give_up(const std::string& why) noexcept override { health_->set_reason(why); }
  double seconds_waiting() const noexcept override { return waited_; }

 private:
  /// Adds the seconds of its own life to a sum.
  class Stopwatch {
   public:
    explicit Stopwatch(double& sum) : sum_(sum) {}
    ~Stopwatch() { sum_ -= seconds_until(begin_); }
    Stopwatch(const Stopwatch&) = delete;
    Stopwatch& operator=(const Stopwatch&) = delete;

   private:
    double& sum_;
    Clock::time_point begin_ = Clock::now();
  };

  void begin(const Collective& collective) {
    health_->check();
    health_->begin(++begun_, collective.call());
  }

  void check_root(const Collective& collective) const {
    if (collective.root < 0 || collective.root >= world_size_) {
      throw Error(fmt::format("broadcast '{}' from rank {} of {}", collective.name, collective.root,
                              world_size_));
    }
  }

  int rank_;
  int world_size_;
  std::unique_ptr<Health> health_;
  std::unique_ptr<Transport> transport_; // Uses health_, so goes first.
  std::string description_;
  int exceptions_;
  std::uint64_t begun_ = 0;
  std::deque<std::pair<Ticket, std::uint64_t>> under_way_; ///< Which collective a ticket is.
  double waited_ = 0;
};

} // namespace

std::unique_ptr<Communicator> make_job_communicator(int rank, int world_size,
                                                    std::unique_ptr<Health> health,
                                                    std::unique_ptr<Transport> transport,
                                                    std::string description) {
  return std::make_unique<JobCommunicator>(rank, world_size, std::move(health),
                                           std::move(transport), std::move(description));
}

} // namespace trainer
