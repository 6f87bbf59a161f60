#include "trainer/strategy/parameter_server/served.h"

#include <algorithm>
#include <thread>

namespace trainer {
namespace {

/// Buckets large enough for a frame to each server; over a network, and from a GPU, gradients go
/// bucket by bucket.
Shards pieces(const ParameterClient& client, const Device& device, const Buckets& buckets) {
  constexpr std::size_t k_most_pieces = 16;
  const std::size_t floats = client.gradients().size();
  const std::size_t size =
      std::max(bucket_floats(buckets, floats) * client.servers(), floats / k_most_pieces);
  const bool goes_in_pieces = !device.is_host() || client.sends_gradients();
  return {floats, goes_in_pieces ? size * sizeof(float) : k_one_bucket, 0, 1};
}

} // namespace

Served::Served(ParameterClient& client, Replica& replica, const Buckets& buckets, bool needs_norm)
    : Exchange(replica.device), client_(client), replica_(replica),
      buckets_(pieces(client, replica.device, buckets).buckets()), arriving_(buckets_),
      owner_(replica.model->units(), Arenas{.parameters = replica.parameters,
                                            .gradients = replica.gradients,
                                            .device = &replica.device,
                                            .updated = &arriving_}),
      squares_(replica.device.allocate(needs_norm ? sizeof(SquareSum) : 0, DType::u8)) {
  if (!replica.device.is_host()) {
    copies_.emplace(replica.device);
  }
  receive();
}

void Served::start(std::size_t bucket) {
  if (!copies_) {
    send(bucket);
    return;
  }
  const ArenaRange& range = buckets_[bucket];
  copies_->sent = bucket == 0 ? 0 : copies_->sent;
  copies_->out->wait(*replica_.device.stream().record());
  copies_->out->copy(replica_.gradients.data() + range.first,
                     client_.gradients().data() + range.first, range.size() * sizeof(float));
  copies_->under_way.push_back(copies_->out->record());
  send_copied();
}

void Served::send(std::size_t bucket) {
  if (bucket + 1 < buckets_.size()) { // The last bucket goes with the push.
    client_.final(buckets_[bucket].last);
  }
}

/// The pieces that have come to the host.
void Served::send_copied() {
  std::deque<std::unique_ptr<Event>>& under_way = copies_->under_way;
  for (; !under_way.empty() && under_way.front()->has_passed(); under_way.pop_front()) {
    send(copies_->sent++);
  }
}

void Served::advance() {
  if (!copies_) {
    return;
  }
  send_copied();
  if (copies_->sent > 0) { // What of it the connections did not take yet.
    send(copies_->sent - 1);
  }
}

/// Before the push all gradients are the host's.
void Served::synchronise() {
  while (copies_ && !copies_->under_way.empty()) {
    advance();
    std::this_thread::yield();
  }
}

const SquareSum* Served::sum_squares() {
  auto* const sum = static_cast<SquareSum*>(squares_.memory());
  replica_.device.kernels().squares(replica_.device.stream(), replica_.gradients.size(),
                                    replica_.gradients.data(), 0, sum);
  return sum;
}

void Served::update(const Score& score) {
  const double waited = client_.seconds_waiting();
  client_.step(replica_.optimizer.step() - 1, score, rows_, replica_.optimizer.seen().factor);
  clock().add_wait(client_.seconds_waiting() - waited);
}

std::int64_t Served::receive() {
  if (copies_) {
    copies_->in->wait(*replica_.device.stream().record());      // It has read those before.
    for (std::size_t bucket = buckets_.size(); bucket-- > 0;) { // As forward needs them.
      const ArenaRange& range = buckets_[bucket];
      copies_->in->copy(client_.parameters().data() + range.first,
                        replica_.parameters.data() + range.first, range.size() * sizeof(float));
      arriving_.note(bucket, copies_->in->record());
    }
    if (buckets_.size() == 1) { // A graph of a pass leaves need() out.
      join();
    }
  }
  owner_.change();
  return client_.values().step;
}

void Served::join() { arriving_.wait(replica_.device.stream(), {0, replica_.parameters.size()}); }

} // namespace trainer
