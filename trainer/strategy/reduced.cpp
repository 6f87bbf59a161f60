#include "trainer/strategy/reduced.h"

#include <deque>
#include <utility>

#include "trainer/strategy/whole_tensors.h"

namespace trainer {
namespace {

/// From a rank's sum of squares to the next one's: each is its rank's chunk of them.
constexpr std::size_t k_apart = 8;
constexpr std::size_t k_doubles = sizeof(SquareSum) / sizeof(double);

} // namespace

Reduced::Reduced(Communicator& communicator, Replica& replica, const Buckets& buckets,
                 bool needs_norm, Timeline* timeline)
    : Exchange(replica.device, timeline), communicator_(communicator), replica_(replica),
      gradients_(replica.gradients), wire_(buckets.wire),
      shards_(gradients_.size(), is_alone() ? Buckets(k_one_bucket, wire_) : buckets,
              communicator.rank(), communicator.world_size()),
      updated_(shards_.buckets()),
      owner_(replica.make_owner(communicator, is_beside() ? &updated_ : nullptr)),
      updates_(is_alone() && !replica.device.is_host() && !replica.optimizer.is_elsewhere()
                   ? Updates::with_pass
               : (replica.registered.empty() || is_own_chunks_only()) && !needs_norm &&
                       !replica.optimizer.needs_whole_tensors()
                   ? Updates::at_once
                   : Updates::together),
      may_update_(shards_.buckets().size()), squares_memory_(0) {
  if (is_beside()) {
    replica.optimizer.update_beside();
  }
  if (needs_norm) {
    const std::size_t count =
        k_apart * static_cast<std::size_t>(shards_.ranks()) + 1 + shards_.buckets().size();
    if (is_own_chunks_only()) {
      constexpr std::size_t k_floats = sizeof(SquareSum) / sizeof(float);
      squares_ =
          reinterpret_cast<SquareSum*>(communicator.allocate_on_device(k_floats * count).data());
    } else {
      squares_memory_ = replica.device.allocate(count * sizeof(SquareSum), DType::u8);
      squares_ = static_cast<SquareSum*>(squares_memory_.memory());
    }
  }
}

Reduced::~Reduced() {
  try {
    join();
  } catch (const std::exception&) { // The device has failed, and whoever uses it next is told.
  }
}

void Reduced::begin(const Batch& /*batch*/) {
  under_way_.clear();
  given_back_ = released_ = 0;
}

void Reduced::start(std::size_t number) {
  const bool is_last = number + 1 == shards_.buckets().size();
  const std::span<float> registered = replica_.registered;
  // Where all of a sum is everyone's, what is registered besides is summed with it.
  const std::size_t more =
      is_last && replica_.device.is_host() && !is_own_chunks_only() && wire_ == WireType::fp32
          ? registered.size()
          : 0;
  const ArenaRange& range = shards_.buckets()[number];
  const std::span<float> bucket(gradients_.data() + range.first, range.size() + more);
  replica_.device.commit(bucket);
  const auto kind =
      is_own_chunks_only() ? Collective::Kind::reduce_scatter : Collective::Kind::all_reduce;
  if (updates_ != Updates::with_pass) { // Else nothing travels.
    clock().start_sum();
  }
  under_way_.push_back({communicator_.start(kind, bucket, "gradients", wire_), number});
  if (is_last && more < registered.size()) { // Its numbers need more bits than the gradients.
    clock().start_sum();
    under_way_.push_back({communicator_.start_all_reduce(registered, "votes"), k_no_bucket});
  }
  if (replica_.sharding.stage >= 2 && number + 1 >= k_sums_under_way) {
    clock().lap(StepClock::Part::compute);
    give_back(number + 1 - k_sums_under_way);
    clock().lap(StepClock::Part::wait);
  }
}

/// Of the first so many buckets, once they are summed.
void Reduced::give_back(std::size_t buckets) {
  for (; given_back_ < buckets; ++given_back_) {
    communicator_.wait_in(replica_.device.stream(), under_way_[given_back_].ticket);
    discard_others(replica_.device, shards_, given_back_, gradients_);
    if (updates_ == Updates::at_once && is_beside()) {
      may_update_[given_back_] = replica_.device.stream().record();
    }
  }
}

void Reduced::release(std::size_t count) {
  if (updates_ != Updates::at_once || !is_beside()) {
    return;
  }
  std::shared_ptr<const Event> now;
  const auto& buckets = shards_.buckets();
  for (; released_ < buckets.size() && buckets[released_].last <= count; ++released_) {
    if (!now) {
      now = replica_.device.stream().record();
    }
    may_update_[released_] = now;
  }
}

void Reduced::synchronise() {
  if (updates_ == Updates::with_pass) {
    return;
  }
  clock().skip();
  release(gradients_.size());
  for (const UnderWay& sum : under_way_) {
    // Whoever frees a part of a bucket waits for it on the device's stream.
    const bool waits_beside = updates_ == Updates::at_once && replica_.sharding.stage < 2;
    communicator_.wait_in(waits_beside ? replica_.optimizer.stream() : replica_.device.stream(),
                          sum.ticket);
    clock().end_sum();
    if (replica_.sharding.stage >= 2 && sum.bucket != k_no_bucket) {
      give_back(sum.bucket + 1);
    }
    if (updates_ == Updates::at_once && sum.bucket != k_no_bucket) {
      update_bucket(sum.bucket);
      clock().lap(StepClock::Part::update);
    }
  }
}

void Reduced::update_bucket(std::size_t bucket) {
  const ArenaRange& range = shards_.buckets()[bucket];
  if (const auto event = std::exchange(may_update_[bucket], nullptr)) {
    replica_.optimizer.stream().wait(*event);
  }
  replica_.optimizer.update_own(range.first, range.last);
  std::shared_ptr<const Event> updated;
  if (is_beside()) {
    updated = replica_.optimizer.updated();
  }
  if (is_own_chunks_only() && replica_.sharding.stage < 3) {
    gather_updated(bucket, updated.get());
  } else if (updated) {
    updated_.note(bucket, std::move(updated));
  }
}

void Reduced::gather_updated(std::size_t bucket, const Event* after) {
  const ArenaRange& range = shards_.buckets()[bucket];
  gathers_.push_back(
      communicator_.start({.kind = Collective::Kind::all_gather,
                           .range = replica_.parameters.subspan(range.first, range.size()),
                           .name = "parameters",
                           .after = after}));
}

/// Of tensors that move as a whole, whose directions the ranks have parts of: these are gathered in
/// place of gradients. Every rank moves all of a tensor, so that only buckets with others, too,
/// have to be gathered after; at stage 3 its own part.
void Reduced::update_whole_tensors() {
  Optimizer& optimizer = replica_.optimizer;
  const int stage = replica_.sharding.stage;
  const std::vector<ArenaRange>& buckets = shards_.buckets();
  const std::vector<const Tensor*>& tensors = optimizer.whole_tensors();
  std::deque<UnderWay> directions;
  const auto gather_parameters = [&](std::size_t bucket) {
    if (!optimizer.moves_whole(buckets[bucket])) {
      gather_updated(bucket, nullptr);
    }
  };
  optimizer.update_own(0, gradients_.size());
  move_in_order(
      tensors, buckets, stage >= 2 ? k_directions_ahead : tensors.size(),
      [&](std::size_t bucket) {
        const std::span<float> all =
            gradients_.subspan(buckets[bucket].first, buckets[bucket].size());
        replica_.device.commit(all);
        directions.push_back({communicator_.start_all_gather(all, "directions"), bucket});
      },
      [&](const Tensor& tensor) {
        while (!directions.empty() &&
               buckets[directions.front().bucket].first < tensor.range().last) {
          communicator_.wait_in(replica_.device.stream(), directions.front().ticket);
          directions.pop_front();
        }
        optimizer.take_step(tensor, stage == 3);
      },
      [&](std::size_t bucket) {
        if (stage >= 2) {
          discard_others(replica_.device, shards_, bucket, gradients_);
        } else { // All directions have been started, which are waited for before parameters.
          gather_parameters(bucket);
        }
      });
  for (std::size_t bucket = 0; stage == 2 && bucket < buckets.size(); ++bucket) {
    gather_parameters(bucket);
  }
  optimizer.join(); // Parameters may be on their way to the host, from which they are gathered.
}

void Reduced::update(const Score& /*score*/) {
  if (!is_own_chunks_only() && !is_beside()) {
    replica_.optimizer.update(0, gradients_.size());
    return;
  }
  if (replica_.optimizer.needs_whole_tensors()) {
    update_whole_tensors();
    return;
  }
  const std::size_t buckets = shards_.buckets().size();
  // As forward needs them; but files are read ahead from the first piece to the last.
  const bool from_last = is_beside() && !replica_.optimizer.is_in_files();
  for (std::size_t i = 0; i < buckets; ++i) {
    update_bucket(from_last ? buckets - 1 - i : i);
  }
}

/// At stage 3 they are gathered when needed.
std::int64_t Reduced::receive() {
  if (!gathers_.empty()) {
    clock().skip();
    for (const Communicator::Ticket ticket : gathers_) {
      communicator_.wait_in(replica_.device.stream(), ticket);
    }
    gathers_.clear();
    clock().lap(StepClock::Part::wait);
  }
  owner_->change();
  return replica_.optimizer.step();
}

/// Of the gradients that have come, and no host waits for it: the sum of squares of each chunk, of
/// each rank's chunks, and of all ranks. Chunk by chunk and rank by rank, so that it has the same
/// bits whoever holds the chunks.
const SquareSum* Reduced::sum_squares() {
  Stream& stream = replica_.device.stream();
  const Kernels& kernels = replica_.device.kernels();
  const auto ranks = static_cast<std::size_t>(shards_.ranks());
  const std::size_t buckets = shards_.buckets().size();
  SquareSum* const total = squares_ + k_apart * ranks;
  SquareSum* const of_bucket = total + 1;
  if (ranks == 1 || (!is_own_chunks_only() && !replica_.device.is_host())) { // All in one pass.
    kernels.squares(stream, gradients_.size(), gradients_.data(), 0, total);
    return total;
  }
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    if (is_own_chunks_only() && static_cast<int>(rank) != communicator_.rank()) {
      continue;
    }
    std::size_t chunks = 0;
    for (std::size_t bucket = 0; bucket < buckets; ++bucket) {
      const ArenaRange chunk = shards_.chunk(bucket, static_cast<int>(rank));
      if (chunk.size() > 0) {
        kernels.squares(stream, chunk.size(), gradients_.data() + chunk.first, chunk.first,
                        of_bucket + chunks++);
      }
    }
    kernels.sum(stream, chunks, 1, of_bucket, squares_ + k_apart * rank);
  }
  if (is_own_chunks_only()) {
    const Range all(squares_, k_apart * k_doubles * ranks, DType::f64);
    communicator_.wait_in(stream, communicator_.start_all_gather(all, "squared norms"));
  }
  kernels.sum(stream, ranks, k_apart, squares_, total);
  return total;
}

} // namespace trainer
