#include "trainer/collectives/single_rank.h"

#include <list>
#include <utility>

#include "trainer/collectives/memory.h"
#include "trainer/device/device.h"

namespace trainer {
namespace {

class SingleRank final : public Communicator {
 public:
  SingleRank(Device* device, std::string name) : device_(device), name_(std::move(name)) {}

  int rank() const noexcept override { return 0; }
  int world_size() const noexcept override { return 1; }
  std::string name(int) const override { return name_; }
  std::string describe() const override { return "none, 1 rank"; }
  Route route(std::size_t, WireType) const override { return {"nothing to reduce", 0}; }
  std::span<float> allocate(std::size_t count) override {
    return memory_.emplace_back(count).floats();
  }
  std::span<float> allocate_on_device(std::size_t count) override {
    return device_ == nullptr
               ? allocate(count)
               : on_device_.emplace_back(device_->allocate(count, DType::f32)).span();
  }
  Ticket start(Collective) override { return next_ticket_++; }
  void wait(Ticket) override {}
  void carry_out(Collective) override {}
  void set_step(std::int64_t) noexcept override {}
  double seconds_waiting() const noexcept override { return 0; }

 private:
  Device* device_;
  std::string name_;
  std::list<Buffer> on_device_;
  std::list<PrivateMemory> memory_;
  Ticket next_ticket_ = 0;
};

} // namespace

std::unique_ptr<Communicator> make_single_rank(Device* device, std::string name) {
  return std::make_unique<SingleRank>(device, std::move(name));
}

} // namespace trainer
