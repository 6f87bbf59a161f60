#include "trainer/collectives/shared_memory/shared_memory.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <optional>

#include <fmt/format.h>

#include "trainer/collectives/reduce.h"
#include "trainer/collectives/shared_memory/shared_arena.h"
#include "trainer/collectives/shared_memory/staged.h"

namespace trainer {
namespace {

constexpr std::size_t k_block_bytes = 64UL * 1024; ///< Bytes claimed at a time.

class SharedMemory final : public Transport {
 public:
  SharedMemory(HostGroup group, int rank, Health& health)
      : group_(std::move(group)), health_(health), n_(static_cast<int>(group_.members.size())),
        self_(static_cast<int>(std::find(group_.members.begin(), group_.members.end(), rank) -
                               group_.members.begin())),
        arena_(group_.file, n_), staged_(arena_, health_, n_, self_),
        file_end_(SharedArena::size(n_)) {}

  std::string describe() const override { return "shared memory"; }

  Route route(std::size_t bytes, WireType) const override {
    return {bytes <= k_block_bytes ? "shared memory: in place, by the last rank to come"
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
    agree.range = {nullptr, count, DType::f32};
    finish(start(agree));
    if (count == 0) {
      return {};
    }
    if (self_ == 0) {
      group_.file.grow(begin + size);
    }
    finish(start(agree)); // No rank maps it before it is that long.
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
    posted.bytes = collective.range.size_bytes();
    posted.wire = collective.wire;
    posted.dtype = collective.range.dtype();
    posted.pieces = collective.pieces;
    std::copy_n(collective.name.begin(), std::min(collective.name.size(), posted.name.size() - 1),
                posted.name.begin());
    for (std::size_t i = 0; i < regions_.size(); ++i) {
      const std::byte* own = regions_[i].of(self_);
      const std::span<std::byte> bytes = collective.range.bytes();
      if (bytes.data() >= own && bytes.data() + bytes.size() <= own + regions_[i].stride) {
        posted.region = static_cast<std::int32_t>(i);
        posted.offset = static_cast<std::uint64_t>(bytes.data() - own);
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
    const std::size_t bytes = pending.collective.range.size_bytes();
    const auto blocks = static_cast<std::uint32_t>(
        moves_data(pending) ? std::max<std::size_t>(1, (bytes + k_block_bytes - 1) / k_block_bytes)
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
        // While a block is in hand the entry cannot advance to its next use.
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
    buffers_.clear();
    for (int position = 0; position < n_; ++position) {
      buffers_.push_back(region.of(position) + pending.posted.offset);
    }
    const Collective& collective = pending.collective;
    const std::size_t size = size_of(collective.range.dtype());
    const std::size_t first = block * k_block_bytes / size;
    const std::size_t count = std::min(k_block_bytes / size, collective.range.count() - first);
    carry_out_range(collective, first, count);
  }

  /// Values [first, first + count) of buffers_, by position: from all who bring them, in the ring's
  /// order, to all who get them.
  void carry_out_range(const Collective& collective, std::size_t first, std::size_t count) {
    const Chunks chunks(collective, n_);
    while (count > 0) {
      const int chunk = chunks.holding(first);
      const int owner = chunks.owner(chunk);
      const std::size_t part = std::min(count, chunks.begin(chunk + 1) - first);
      const std::size_t at = first * size_of(collective.range.dtype());
      in_.clear();
      out_.clear();
      using Kind = Collective::Kind;
      const Kind kind = collective.kind;
      const bool adds = kind == Kind::all_reduce || kind == Kind::reduce_scatter;
      const bool is_owners = kind == Kind::all_gather || kind == Kind::gather;
      const auto buffer = [&](int position) {
        return buffers_[static_cast<std::size_t>(position)] + at;
      };
      for (int k = 0; adds && k < n_; ++k) {
        in_.push_back(buffer((owner + 1 + k) % n_));
      }
      const bool is_nobodys = owner < 0;
      if (!adds && !(is_owners && is_nobodys)) {
        in_.push_back(buffer(is_owners ? owner : collective.root));
      }
      if (kind == Kind::gather) {
        out_.push_back(buffer(collective.root));
      } else if (kind == Kind::reduce_scatter || kind == Kind::scatter) {
        if (!is_nobodys) {
          out_.push_back(buffer(owner));
        }
      } else {
        for (int position = 0; position < n_; ++position) {
          out_.push_back(buffer(position));
        }
      }
      if (!in_.empty() && !out_.empty()) {
        sum_values(collective.range.dtype(), collective.wire, out_, in_, part);
      }
      first += part;
      count -= part;
    }
  }

  // Ordinary buffers.

  void carry_out_staged(const Pending& pending) {
    const std::uint64_t number = retired_;
    staged_.carry_out(pending.collective, [&] {
      post(number);
      agree(number);
    });
    count_done(number, static_cast<std::uint32_t>(n_));
  }

  void agree(std::uint64_t number) {
    arena_.wait_until(health_, [&] { return all_arrived(number); });
    compare(number);
  }

  HostGroup group_;
  Health& health_;
  int n_;
  int self_; ///< Position in the group: what this room's ranks are numbered by.
  SharedArena arena_;
  Staged staged_;
  std::size_t file_end_;
  std::deque<Region> regions_;
  std::deque<Pending> pending_; ///< Started and not finished here, from collective retired_ on.
  std::uint64_t started_ = 0;
  std::uint64_t retired_ = 0;
  std::vector<std::byte*> buffers_; ///< Of all positions.
  std::vector<const std::byte*> in_;
  std::vector<std::byte*> out_;
};

} // namespace

std::unique_ptr<Transport> make_shared_memory(HostGroup group, int rank, Health& health) {
  return std::make_unique<SharedMemory>(std::move(group), rank, health);
}

} // namespace trainer
