#include "trainer/strategy/parameter_server/served.h"

#include <algorithm>

namespace trainer {
namespace {

/// Buckets large enough for a frame to each server; over a network, gradients go bucket by bucket.
Shards pieces(const ParameterClient& client, const Device& device, const Buckets& buckets) {
  constexpr std::size_t k_most_pieces = 16;
  const std::size_t floats = client.gradients().size();
  const std::size_t size =
      std::max(bucket_floats(buckets, floats) * client.servers(), floats / k_most_pieces);
  const bool goes_in_pieces = device.is_host() && client.sends_gradients();
  return {floats, goes_in_pieces ? size * sizeof(float) : k_one_bucket, 0, 1};
}

} // namespace

Served::Served(ParameterClient& client, Replica& replica, const Buckets& buckets, bool needs_norm)
    : Exchange(replica.device), client_(client), replica_(replica),
      owner_(replica.model->units(), Arenas{replica.parameters, replica.gradients}),
      buckets_(pieces(client, replica.device, buckets).buckets()),
      squares_(replica.device.allocate(needs_norm ? 1 : 0, DType::f64)) {
  receive();
}

void Served::start(std::size_t bucket) {
  if (bucket + 1 < buckets_.size()) { // The last bucket goes with the push.
    client_.final(buckets_[bucket].last);
  }
}

void Served::synchronise() {
  if (!replica_.device.is_host()) {
    replica_.device.stream().copy(replica_.gradients.data(), client_.gradients().data(),
                                  replica_.gradients.size_bytes());
  }
}

const double* Served::sum_squares() {
  auto* const sum = static_cast<double*>(squares_.memory());
  replica_.device.kernels().squares(replica_.device.stream(), replica_.gradients.size(),
                                    replica_.gradients.data(), sum);
  return sum;
}

void Served::update(const Score& score) {
  const double waited = client_.seconds_waiting();
  client_.step(replica_.optimizer.step() - 1, score, rows_, replica_.optimizer.seen().factor);
  clock().add_wait(client_.seconds_waiting() - waited);
}

std::int64_t Served::receive() {
  if (!replica_.device.is_host()) {
    replica_.device.stream().copy(client_.parameters().data(), replica_.parameters.data(),
                                  replica_.parameters.size_bytes());
  }
  owner_.change();
  return client_.values().step;
}

} // namespace trainer
