#include "trainer/collectives/shared_memory/shared_memory.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <optional>

#include <fmt/format.h>

#include "trainer/collectives/reduce.h"
#include "trainer/collectives/shared_memory/shared_arena.h"

namespace trainer {
namespace {

constexpr std::size_t k_block_floats = 16UL * 1024; ///< What is claimed at a time.
constexpr std::size_t k_short_bytes = 64UL * 1024;  ///< Ordinary buffers that are copied whole.
constexpr int k_most_ranks_whole = 4;               ///< Up to here longer ones are, too:
constexpr std::size_t k_whole_bytes = 1024UL * 1024;
constexpr std::size_t k_piece_bytes = k_slot_bytes; ///< Of longer ones, what a slot takes.

class SharedMemory final : public Transport {
 public:
  SharedMemory(HostGroup group, int rank, Health& health)
      : group_(std::move(group)), health_(health), n_(static_cast<int>(group_.members.size())),
        self_(static_cast<int>(std::find(group_.members.begin(), group_.members.end(), rank) -
                               group_.members.begin())),
        arena_(group_.file, n_), file_end_(SharedArena::size(n_)) {}

  std::string describe() const override { return "shared memory"; }

  Route route(std::size_t bytes, WireType) const override {
    return {bytes <= k_block_floats * sizeof(float)
                ? "shared memory: in place, by the last rank to come"
                : "shared memory: in place, by whoever waits, block by block",
            0};
  }

  std::span<float> allocate(std::size_t count) override {
    const std::size_t stride =
        (count * sizeof(float) + k_shared_page - 1) / k_shared_page * k_shared_page;
    const std::size_t begin = file_end_;
    const std::size_t size = stride * static_cast<std::size_t>(n_);
    Collective agree;
    agree.kind = Collective::Kind::allocate;
    agree.bytes = {static_cast<std::byte*>(nullptr), count * sizeof(float)};
    finish(start(agree));
    if (count == 0) {
      return {};
    }
    if (self_ == 0) {
      group_.file.grow(begin + size);
    }
    finish(start(agree)); // Nobody maps it before it is that long.
    file_end_ += size;
    const Region& region = regions_.emplace_back(group_.file.map(begin, size), stride);
    return {reinterpret_cast<float*>(region.of(self_)), count};
  }

  std::uint64_t start(Collective collective) override {
    if (started_ - retired_ >= k_ring_entries) {
      finish(started_ - k_ring_entries);
    }
    Pending pending{std::move(collective), {}};
    pending.posted = describe(pending.collective);
    pending.is_staged = pending.posted.region == Posted::k_ordinary && moves_data(pending);
    pending_.push_back(std::move(pending));
    const std::uint64_t number = started_++;
    if (!pending_.back().is_staged) {
      post(number);
    }
    return number;
  }

  void finish(std::uint64_t number) override {
    while (retired_ <= number && !pending_.empty()) {
      const Pending& pending = pending_.front();
      wire_ = pending.collective.wire;
      if (pending.is_staged) {
        carry_out_staged(pending);
      } else {
        carry_out_in_place(pending);
      }
      pending_.pop_front();
      ++retired_;
    }
  }

 private:
  struct Region {
    SharedFile::Mapping mapping;
    std::size_t stride; ///< Bytes from one rank's part to the next one's.

    Region(SharedFile::Mapping mapping_, std::size_t stride_)
        : mapping(std::move(mapping_)), stride(stride_) {}
    std::byte* of(int position) const {
      return mapping.data() + static_cast<std::size_t>(position) * stride;
    }
  };

  struct Pending {
    Collective collective;
    Posted posted;
    bool is_staged = false;
  };

  static bool moves_data(const Pending& pending) {
    return pending.collective.kind != Collective::Kind::barrier &&
           pending.collective.kind != Collective::Kind::allocate;
  }

  Posted describe(const Collective& collective) const {
    Posted posted;
    posted.kind = collective.kind;
    posted.root = collective.root;
    posted.bytes = collective.bytes.size();
    posted.wire = collective.wire;
    std::copy_n(collective.name.begin(), std::min(collective.name.size(), posted.name.size() - 1),
                posted.name.begin());
    for (std::size_t i = 0; i < regions_.size(); ++i) {
      const std::byte* own = regions_[i].of(self_);
      if (collective.bytes.data() >= own &&
          collective.bytes.data() + collective.bytes.size() <= own + regions_[i].stride) {
        posted.region = static_cast<std::int32_t>(i);
        posted.offset = static_cast<std::uint64_t>(collective.bytes.data() - own);
      }
    }
    return posted;
  }

  // Every collective: posted by each rank, complete when all its blocks are done.

  /// An entry is used again once all are done with it: in ordinary buffers a rank goes on when it
  /// has done its own part.
  void post(std::uint64_t number) {
    const Entry& entry = arena_.entry(number);
    arena_.wait_until(health_, [&] { return entry.completed.load() >= generation(number); });
    arena_.posted(number, self_) = pending_[number - retired_].posted;
    if (arena_.entry(number).arrived.fetch_add(1) + 1 == static_cast<std::uint32_t>(n_)) {
      arena_.signal();
    }
  }

  static std::uint64_t generation(std::uint64_t number) { return number / k_ring_entries; }

  bool all_arrived(std::uint64_t number) const {
    return arena_.entry(number).arrived.load() == static_cast<std::uint32_t>(n_);
  }

  bool is_complete(std::uint64_t number) const {
    return arena_.entry(number).completed.load() > generation(number);
  }

  /// The ranks' order of calls is the user's: compare before a peer's memory is touched.
  void compare(std::uint64_t number) {
    const Posted& own = arena_.posted(number, self_);
    for (int position = 0; position < n_; ++position) {
      const Posted& other = arena_.posted(number, position);
      if (other != own) {
        health_.fail(fmt::format("the ranks' collectives differ: {} is at {}, {} at {}",
                                 name(position), other.text(), name(self_), own.text()));
      }
    }
  }

  std::string name(int position) const {
    return health_.name(group_.members[static_cast<std::size_t>(position)]);
  }

  void count_done(std::uint64_t number, std::uint32_t of) {
    Entry& entry = arena_.entry(number);
    if (entry.done.fetch_add(1) + 1 == of) {
      entry.done.store(0);
      entry.arrived.store(0);
      entry.claim.store((generation(number) + 1) << 32);
      entry.completed.store(generation(number) + 1);
      arena_.signal();
    }
  }

  // Registered buffers, and collectives without data.

  void carry_out_in_place(const Pending& pending) {
    const std::uint64_t number = retired_;
    const Entry& entry = arena_.entry(number);
    const std::size_t floats = pending.collective.bytes.size() / sizeof(float);
    const auto blocks = static_cast<std::uint32_t>(
        moves_data(pending)
            ? std::max<std::size_t>(1, (floats + k_block_floats - 1) / k_block_floats)
            : 1);
    const auto has_block = [&] {
      const std::uint64_t claim = entry.claim.load();
      return claim >> 32 == (generation(number) & UINT32_MAX) && (claim & UINT32_MAX) < blocks;
    };
    bool compared = false;
    while (true) {
      arena_.wait_until(
          health_, [&] { return is_complete(number) || (all_arrived(number) && has_block()); });
      if (is_complete(number)) {
        return;
      }
      while (const auto block = claim(number, blocks)) {
        // With a block in hand the entry cannot go on to its next use.
        if (!compared) {
          compare(number);
          compared = true;
        }
        if (moves_data(pending)) {
          carry_out_block(pending, *block);
        }
        count_done(number, blocks);
      }
    }
  }

  std::optional<std::uint32_t> claim(std::uint64_t number, std::uint32_t blocks) {
    std::atomic<std::uint64_t>& claims = arena_.entry(number).claim;
    std::uint64_t next = claims.load();
    while (next >> 32 == (generation(number) & UINT32_MAX) && (next & UINT32_MAX) < blocks) {
      if (claims.compare_exchange_weak(next, next + 1)) {
        return static_cast<std::uint32_t>(next & UINT32_MAX);
      }
    }
    return std::nullopt;
  }

  void carry_out_block(const Pending& pending, std::uint32_t block) {
    const Region& region = regions_[static_cast<std::size_t>(pending.posted.region)];
    const auto buffer = [&](int position) { return region.of(position) + pending.posted.offset; };
    const std::size_t size = pending.collective.bytes.size();
    const std::size_t begin = block * k_block_floats * sizeof(float);
    if (pending.collective.kind == Collective::Kind::broadcast) {
      const bool last = (size - begin) / sizeof(float) <= k_block_floats;
      const std::size_t length = last ? size - begin : k_block_floats * sizeof(float);
      for (int position = 0; position < n_; ++position) {
        if (position != pending.collective.root) {
          std::memcpy(buffer(position) + begin, buffer(pending.collective.root) + begin, length);
        }
      }
      return;
    }
    in_.clear();
    out_.clear();
    for (int position = 0; position < n_; ++position) {
      in_.push_back(reinterpret_cast<const float*>(buffer(position)));
      out_.push_back(reinterpret_cast<float*>(buffer(position)));
    }
    const std::size_t first = begin / sizeof(float);
    const std::size_t count = size / sizeof(float);
    sum_range(Chunks(count, n_), first, std::min(k_block_floats, count - first), 0,
              pending.collective.kind);
  }

  /// Sums floats [first, first + count) of in_ (by position) into all of out_, each chunk in the
  /// ring's order; the arrays begin at float `origin` of the buffer. To gather only the chunk's
  /// owner is read, to scatter only it is written.
  void sum_range(const Chunks& chunks, std::size_t first, std::size_t count, std::size_t origin,
                 Collective::Kind kind = Collective::Kind::all_reduce) {
    while (count > 0) {
      const int chunk = static_cast<int>(first / chunks.length);
      const auto owner = static_cast<std::size_t>(chunk);
      const std::size_t part = std::min(count, chunks.begin(chunk + 1) - first);
      const std::size_t at = first - origin;
      ordered_in_.clear();
      shifted_out_.clear();
      for (int k = kind == Collective::Kind::all_gather ? n_ - 1 : 0; k < n_; ++k) {
        ordered_in_.push_back(in_[static_cast<std::size_t>((chunk + 1 + k) % n_)] + at);
      }
      if (kind == Collective::Kind::reduce_scatter) {
        shifted_out_.push_back(out_[owner] + at);
      } else {
        for (float* const to : out_) {
          shifted_out_.push_back(to + at);
        }
      }
      sum_to_all(wire_, shifted_out_, ordered_in_, part);
      first += part;
      count -= part;
    }
  }

  // Ordinary buffers. Of these a reduce_scatter is an all_reduce: they are copied in whole anyway.

  void carry_out_staged(const Pending& pending) {
    const std::uint64_t number = retired_;
    const std::span<std::byte> bytes = pending.collective.bytes;
    if (pending.collective.kind == Collective::Kind::broadcast) {
      post(number);
      agree(number);
      broadcast_pieces(bytes, pending.collective.root);
    } else if (pending.collective.kind == Collective::Kind::all_gather) {
      post(number);
      agree(number);
      for (const Collective& part : gather_by_broadcasts(pending.collective, self_, n_)) {
        broadcast_pieces(part.bytes, part.root);
      }
    } else if (copies_whole(bytes.size())) {
      reduce_whole(number, bytes);
    } else {
      post(number);
      agree(number);
      reduce_pieces(bytes);
    }
    count_done(number, static_cast<std::uint32_t>(n_));
  }

  void agree(std::uint64_t number) {
    arena_.wait_until(health_, [&] { return all_arrived(number); });
    compare(number);
  }

  /// The slot that a piece will use is free once all ranks have copied out the piece before it.
  void await_slot(std::uint64_t piece) {
    if (piece >= k_slots) {
      await_all(&Stages::copied_out, piece - k_slots);
    }
  }

  void await_all(std::atomic<std::uint64_t> Stages::*stage, std::uint64_t piece) {
    arena_.wait_until(health_, [&] {
      for (int position = 0; position < n_; ++position) {
        if ((arena_.stages(position).*stage).load() <= piece) {
          return false;
        }
      }
      return true;
    });
  }

  void pass(std::atomic<std::uint64_t> Stages::*stage, std::uint64_t piece) {
    (arena_.stages(self_).*stage).store(piece + 1);
    arena_.signal();
  }

  bool copies_whole(std::size_t bytes) const {
    return n_ == 2 || (n_ <= k_most_ranks_whole && bytes <= k_whole_bytes) ||
           bytes <= k_short_bytes;
  }

  bool slot_is_free(std::uint64_t piece) const {
    for (int position = 0; position < n_ && piece >= k_slots; ++position) {
      if (arena_.stages(position).copied_out.load() <= piece - k_slots) {
        return false;
      }
    }
    return true;
  }

  void reduce_whole(std::uint64_t number, std::span<std::byte> bytes) {
    const Chunks chunks(bytes.size() / sizeof(float), n_);
    const std::size_t count = (bytes.size() + k_piece_bytes - 1) / k_piece_bytes;
    const std::uint64_t base = pieces_;
    pieces_ += count;
    const auto part = [&](std::size_t i) {
      return bytes.subspan(i * k_piece_bytes,
                           std::min(k_piece_bytes, bytes.size() - i * k_piece_bytes));
    };
    std::size_t copied = 0;
    const auto copy_in = [&] {
      std::memcpy(arena_.slot(self_, base + copied), part(copied).data(), part(copied).size());
      arena_.stages(self_).copied_in.store(base + ++copied);
    };
    // As far ahead as there are slots: each rank then has work while another is off its core.
    const auto copy_ahead = [&] {
      const std::size_t before = copied;
      while (copied < count && slot_is_free(base + copied)) {
        copy_in();
      }
      return copied > before;
    };
    if (count > 0) {
      await_slot(base);
      copy_ahead();
    }
    post(number);
    agree(number);
    for (std::size_t i = 0; i < count; ++i) {
      if (copied == i) {
        await_slot(base + i);
      }
      if (copy_ahead()) {
        arena_.signal();
      }
      await_all(&Stages::copied_in, base + i);
      float* const own = reinterpret_cast<float*>(part(i).data());
      in_.clear();
      for (int position = 0; position < n_; ++position) {
        in_.push_back(position == self_
                          ? own
                          : reinterpret_cast<const float*>(arena_.slot(position, base + i)));
      }
      out_.assign(1, own);
      const std::size_t first = i * k_piece_bytes / sizeof(float);
      sum_range(chunks, first, part(i).size() / sizeof(float), first);
      pass(&Stages::copied_out, base + i);
    }
  }

  void reduce_pieces(std::span<std::byte> bytes) {
    const Chunks chunks(bytes.size() / sizeof(float), n_);
    const std::size_t count = (bytes.size() + k_piece_bytes - 1) / k_piece_bytes;
    const std::uint64_t base = pieces_;
    pieces_ += count;
    float* const buffer = reinterpret_cast<float*>(bytes.data());
    constexpr std::size_t k_piece_floats = k_piece_bytes / sizeof(float);
    /// Of piece i, the share that a rank reduces: where it begins in the buffer, and its length.
    const auto share = [&](std::size_t i, int position) {
      const std::size_t first = i * k_piece_floats;
      const Chunks shares(std::min(k_piece_floats, chunks.count - first), n_);
      return std::pair(first + shares.begin(position), shares.size(position));
    };
    const auto staged = [&](std::size_t i, int of, std::size_t first) {
      return reinterpret_cast<float*>(arena_.slot(of, base + i)) + (first - i * k_piece_floats);
    };
    for (std::size_t turn = 0; turn < count + 2; ++turn) {
      if (turn < count) { // A
        await_slot(base + turn);
        for (int to = 0; to < n_; ++to) {
          const auto [first, length] = share(turn, to);
          if (to != self_) {
            copy(staged(turn, self_, first), buffer + first, length);
          }
        }
        pass(&Stages::copied_in, base + turn);
      }
      if (turn >= 1 && turn - 1 < count) { // B
        const std::size_t i = turn - 1;
        await_all(&Stages::copied_in, base + i);
        const auto [first, length] = share(i, self_);
        in_.clear();
        for (int position = 0; position < n_; ++position) {
          in_.push_back(position == self_ ? buffer + first : staged(i, position, first));
        }
        out_.assign({buffer + first, staged(i, self_, first)});
        sum_range(chunks, first, length, first);
        pass(&Stages::reduced, base + i);
      }
      if (turn >= 2) { // C
        const std::size_t i = turn - 2;
        await_all(&Stages::reduced, base + i);
        for (int from = 0; from < n_; ++from) {
          const auto [first, length] = share(i, from);
          if (from != self_) {
            copy(buffer + first, staged(i, from, first), length);
          }
        }
        pass(&Stages::copied_out, base + i);
      }
    }
  }

  void broadcast_pieces(std::span<std::byte> bytes, int root) {
    const std::size_t count = (bytes.size() + k_piece_bytes - 1) / k_piece_bytes;
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint64_t piece = pieces_++;
      const auto part = bytes.subspan(i * k_piece_bytes,
                                      std::min(k_piece_bytes, bytes.size() - i * k_piece_bytes));
      if (self_ == root) {
        await_slot(piece);
        std::memcpy(arena_.slot(root, piece), part.data(), part.size());
        pass(&Stages::copied_in, piece);
      } else {
        arena_.wait_until(health_, [&] { return arena_.stages(root).copied_in.load() > piece; });
        std::memcpy(part.data(), arena_.slot(root, piece), part.size());
      }
      pass(&Stages::copied_out, piece);
    }
  }

  HostGroup group_;
  Health& health_;
  int n_;
  int self_; ///< Position in the group: what this room's ranks are numbered by.
  SharedArena arena_;
  std::size_t file_end_;
  std::deque<Region> regions_;
  std::deque<Pending> pending_; ///< Started and not finished here, from collective retired_ on.
  std::uint64_t started_ = 0;
  std::uint64_t retired_ = 0;
  std::uint64_t pieces_ = 0;
  WireType wire_ = WireType::fp32; ///< Of the collective that is being carried out.
  std::vector<const float*> in_;
  std::vector<float*> out_;
  std::vector<const float*> ordered_in_;
  std::vector<float*> shifted_out_;
};

} // namespace

std::unique_ptr<Transport> make_shared_memory(HostGroup group, int rank, Health& health) {
  return std::make_unique<SharedMemory>(std::move(group), rank, health);
}

} // namespace trainer
