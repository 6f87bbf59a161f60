#include "trainer/strategy/gathered.h"

#include <algorithm>

namespace trainer {

Gathered::Gathered(Communicator& communicator, Device& device, const std::vector<ArenaRange>& units,
                   const Shards& shards, const Arenas& arenas, const OwnChunks& own)
    : Replicated(units, arenas), communicator_(communicator), device_(device), shards_(shards),
      own_(own), type_(is_in_halves() ? half_type(arenas.precision) : DType::f32),
      copies_(device.is_host() || (own.is_arena && !is_in_halves()) ? nullptr
                                                                    : device.make_stream()),
      gathers_(communicator.world_size() > 1 || copies_), fetched_(units_.size()) {
  for (const ArenaRange& unit : units_) {
    has_factors_of_.push_back(arenas_.factors != nullptr &&
                              std::none_of(arenas_.embeddings.begin(), arenas_.embeddings.end(),
                                           [&](const ArenaRange& e) {
                                             return e.first < unit.last && unit.first < e.last;
                                           }));
  }
  own_.for_each(shards_.own_of_buckets(), [&](std::size_t at, const ArenaRange& /*mine*/) {
    buckets_.push_back({.own_at = at});
  });
}

Gathered::~Gathered() {
  for (const Bucket& bucket : buckets_) {
    if (bucket.read) {
      try {
        own_.values.file->wait(*bucket.read);
      } catch (const std::exception&) { // Whoever needs it is told.
      }
    }
  }
}

/// Those that hold some of it, by number.
ArenaRange Gathered::buckets_of(std::size_t unit) const {
  const auto& all = shards_.buckets();
  const auto first = std::partition_point(
      all.begin(), all.end(), [&](const ArenaRange& b) { return b.last <= units_[unit].first; });
  const auto last = std::partition_point(
      first, all.end(), [&](const ArenaRange& b) { return b.first < units_[unit].last; });
  return {static_cast<std::size_t>(first - all.begin()),
          static_cast<std::size_t>(last - all.begin())};
}

/// One that is free once what was in it is copied, before any that has to be allocated.
std::size_t Gathered::find_staging() {
  auto found =
      std::find_if(staging_.begin(), staging_.end(), [](const Staging& s) { return !s.is_taken; });
  if (found != staging_.end()) {
    if (found->copied) {
      found->copied->wait();
    }
    found->is_taken = true;
    return static_cast<std::size_t>(found - staging_.begin());
  }
  std::size_t largest = 0;
  for (std::size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
    largest = std::max(largest, shards_.own(bucket).size());
  }
  staging_.push_back({device_.allocate_pinned(largest, DType::f32)});
  return staging_.size() - 1;
}

void Gathered::start_read(std::size_t number) {
  Bucket& bucket = buckets_[number];
  if (bucket.is_here || bucket.is_coming || bucket.read) {
    return;
  }
  const ArenaRange mine = shards_.own(number);
  std::span<float> to = parameters(mine);
  if (copies_) {
    bucket.staging = find_staging();
    to = staging_[bucket.staging].memory.span().first(mine.size());
  }
  bucket.read = own_.values.file->start_read(bucket.own_at, to);
}

void Gathered::end_read(Bucket& bucket) {
  own_.values.file->wait(*bucket.read);
  bucket.read.reset();
}

/// Where the last step may still be updating its own chunk.
std::shared_ptr<const Event> Gathered::updated_of(std::size_t bucket) {
  return arenas_.updated == nullptr ? nullptr : arenas_.updated->take(bucket);
}

/// To where it is gathered.
void Gathered::bring_own(std::size_t number) {
  Bucket& bucket = buckets_[number];
  const ArenaRange mine = shards_.own(number);
  const StoredValues& values = own_.values;
  const bool was_read = values.file != nullptr;
  Stream& stream = copies_ ? *copies_ : device_.stream();
  if (copies_) {
    copies_->wait(*device_.stream().record());
  }
  if (const auto updated = updated_of(number); updated != nullptr && !was_read) {
    stream.wait(*updated);
  }
  if (values.halves) {
    stream.copy((values.halves + bucket.own_at).memory, gathered(mine).data(),
                mine.size() * size_of(type_));
  } else {
    if (copies_ && (was_read || !own_.is_arena)) {
      stream.copy(was_read ? staging_[bucket.staging].memory.data()
                           : values.memory.data() + bucket.own_at,
                  parameters(mine).data(), mine.size() * sizeof(float));
    }
    if (is_in_halves()) {
      device_.kernels().narrow(stream, mine.size(), type_, parameters(mine).data(),
                               gathered(mine).data());
    }
  }
  if (copies_) {
    bucket.copied = copies_->record();
  }
  if (copies_ && was_read) {
    staging_[bucket.staging].copied = bucket.copied;
    staging_[bucket.staging].is_taken = false;
  }
}

void Gathered::start(std::size_t number) {
  Bucket& bucket = buckets_[number];
  if (bucket.is_here || bucket.is_coming) {
    return;
  }
  if (own_.values.file != nullptr) {
    start_read(number);
  }
  bucket.is_coming = true;
  if (!gathers_) {
    return;
  }
  const ArenaRange& range = shards_.buckets()[number];
  device_.commit(gathered(range));
  if (bucket.read) {
    if (is_in_halves()) { // They come to the arena.
      device_.commit(parameters(shards_.own(number)));
    }
    end_read(bucket);
  }
  if (copies_ || is_in_halves()) {
    bring_own(number);
  }
  const std::shared_ptr<const Event> ready = copies_ ? bucket.copied : updated_of(number);
  bucket.ticket = communicator_.start({.kind = Collective::Kind::all_gather,
                                       .range = {gathered(range).data(), range.size(), type_},
                                       .name = "parameters",
                                       .after = ready.get()});
}

void Gathered::wait(std::size_t number) {
  Bucket& bucket = buckets_[number];
  if (!bucket.is_coming) {
    return;
  }
  if (gathers_) {
    communicator_.wait_in(device_.stream(), bucket.ticket);
  } else if (bucket.read) {
    device_.commit(parameters(shards_.own(number)));
    end_read(bucket);
  }
  if (bucket.copied) { // One rank's gather has not waited for it.
    device_.stream().wait(*bucket.copied);
  }
  bucket.is_coming = false;
  bucket.is_here = true;
}

void Gathered::give_back(std::size_t number) {
  wait(number);
  buckets_[number].is_here = false;
  const ArenaRange& range = shards_.buckets()[number];
  if (is_in_halves()) {
    device_.discard(gathered(range));
  }
  if (own_.is_arena && own_.values.file == nullptr) { // Rank 0 of CPUs drew all weights there.
    discard_others(device_, shards_, number, arenas_.parameters);
  } else {
    device_.discard(parameters(range));
  }
}

void Gathered::fetch(std::size_t unit) {
  if (fetched_[unit]) {
    return;
  }
  fetched_[unit] = true;
  const ArenaRange range = buckets_of(unit);
  for (std::size_t bucket = range.first; bucket < range.last; ++bucket) {
    ++buckets_[bucket].users;
    start(bucket);
  }
}

void Gathered::read_ahead(std::size_t unit) {
  const ArenaRange range = buckets_of(unit);
  for (std::size_t bucket = range.first; bucket < range.last; ++bucket) {
    start_read(bucket);
  }
}

UnitMemory Gathered::need(std::size_t unit) {
  if (at_ == order_.size()) {
    order_.push_back({unit, true});
  }
  ++at_;
  fetch(unit);
  const auto needs = [](const Use& use) { return use.needs; };
  const auto next =
      std::find_if(order_.begin() + static_cast<std::ptrdiff_t>(at_), order_.end(), needs);
  if (next != order_.end()) {
    fetch(next->unit);
    const auto after = std::find_if(next + 1, order_.end(), needs);
    if (own_.values.file != nullptr && after != order_.end()) {
      read_ahead(after->unit);
    }
  }
  const ArenaRange range = buckets_of(unit);
  for (std::size_t bucket = range.first; bucket < range.last; ++bucket) {
    wait(bucket);
  }
  UnitMemory memory = Replicated::need(unit);
  if (has_factors_of_[unit]) {
    memory.rounded = arenas_.factors + units_[unit].first;
  }
  return memory;
}

void Gathered::round(std::size_t unit) {
  if (!is_in_halves()) {
    Replicated::round(unit);
    return;
  }
  device_.kernels().widen(device_.stream(), units_[unit].size(), type_,
                          gathered(units_[unit]).data(), rounded(unit).data());
}

void Gathered::done(std::size_t unit) {
  if (!arenas_.rounded.empty()) {
    device_.discard(rounded(unit));
    is_rounded_[unit] = false;
  }
  if (at_ == order_.size()) {
    order_.push_back({unit, false});
  }
  ++at_;
  if (!fetched_[unit] || (at_ < order_.size() && order_[at_].needs && order_[at_].unit == unit)) {
    return; // Backward begins with what forward ended with.
  }
  fetched_[unit] = false;
  const ArenaRange range = buckets_of(unit);
  for (std::size_t bucket = range.first; bucket < range.last; ++bucket) {
    if (--buckets_[bucket].users == 0) {
      give_back(bucket);
    }
  }
}

void Gathered::change() {
  Replicated::change();
  std::fill(fetched_.begin(), fetched_.end(), false);
  for (std::size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
    buckets_[bucket].users = 0;
    if (buckets_[bucket].read) { // And is not needed now.
      end_read(buckets_[bucket]);
      if (copies_) {
        staging_[buckets_[bucket].staging].is_taken = false;
      }
    }
    give_back(bucket);
  }
}

void discard_others(Device& device, const Shards& shards, std::size_t bucket,
                    std::span<float> arena) {
  const ArenaRange& whole = shards.buckets()[bucket];
  const ArenaRange own = shards.own(bucket);
  device.discard(arena.subspan(whole.first, own.first - whole.first));
  device.discard(arena.subspan(own.last, whole.last - own.last));
}

void gather_arena(Communicator& communicator, Device& device, const Shards& shards,
                  std::span<float> arena) {
  Communicator::Ticket last = 0;
  for (const ArenaRange& bucket : shards.buckets()) {
    const std::span<float> whole = arena.subspan(bucket.first, bucket.size());
    device.commit(whole);
    last = communicator.start(Collective::Kind::all_gather, whole, "whole arena");
  }
  communicator.wait_in(device.stream(), last); // And so for those before it.
}

namespace {

/// Calls `body` once a bucket with what it is, room for it on the host, this rank's own part of
/// that, and where this begins in `own`.
template <typename Body>
void for_each_bucket(const Shards& shards, const OwnChunks& own, const Body& body) {
  std::size_t largest = 0;
  for (const ArenaRange& bucket : shards.buckets()) {
    largest = std::max(largest, bucket.size());
  }
  const Buffer room(largest);
  auto bucket = shards.buckets().begin();
  own.for_each(shards.own_of_buckets(), [&](std::size_t at, const ArenaRange& mine) {
    body(*bucket, room.span().first(bucket->size()),
         room.span().subspan(mine.first - bucket->first, mine.size()), at);
    ++bucket;
  });
}

} // namespace

void gather_buckets(Communicator& communicator, Device& device, const Shards& shards,
                    const OwnChunks& own,
                    const std::function<void(const ArenaRange&, std::span<const float>)>& take) {
  for_each_bucket(
      shards, own,
      [&](const ArenaRange& bucket, std::span<float> room, std::span<float> mine, std::size_t at) {
        own.values.read(device, at, mine);
        communicator.wait(communicator.start(Collective::Kind::all_gather, room, "state"));
        take(bucket, room);
      });
}

void fill_chunks(Device& device, const Shards& shards,
                 const std::function<void(const ArenaRange&, std::span<float> to)>& fill,
                 const OwnChunks& own) {
  for_each_bucket(
      shards, own,
      [&](const ArenaRange& bucket, std::span<float> room, std::span<float> mine, std::size_t at) {
        const std::size_t first =
            bucket.first + static_cast<std::size_t>(mine.data() - room.data());
        fill({first, first + mine.size()}, mine);
        own.values.write(device, at, mine);
      });
}

void scatter_buckets(Communicator& communicator, Device& device, const Shards& shards, int source,
                     const std::function<void(const ArenaRange&, std::span<float> to)>& fill,
                     const OwnChunks& own) {
  for_each_bucket(
      shards, own,
      [&](const ArenaRange& bucket, std::span<float> room, std::span<float> mine, std::size_t at) {
        if (communicator.rank() == source) {
          fill(bucket, room);
        }
        communicator.broadcast(std::as_writable_bytes(room), source, "state");
        own.values.write(device, at, mine);
      });
}

} // namespace trainer
