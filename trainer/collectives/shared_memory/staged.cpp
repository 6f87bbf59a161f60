#include "trainer/collectives/shared_memory/staged.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "trainer/collectives/reduce.h"

namespace trainer {
namespace {

constexpr std::size_t k_short_bytes = 64UL * 1024; ///< Ordinary buffers that are copied whole.
constexpr int k_most_ranks_whole = 4;              ///< Up to here longer ones are, too:
constexpr std::size_t k_whole_bytes = 1024UL * 1024;
/// Longer ones are cut into the size of a slot.
constexpr std::size_t k_piece_bytes = k_slot_bytes;
constexpr std::size_t k_reduced_bytes = 128UL * 1024; ///< Less in an all-reduce: reduce_pieces().
static_assert(k_reduced_bytes <= k_slot_bytes);

} // namespace

class Staged::Pieces {
 public:
  Pieces(const SharedArena& arena, Health& health, int ranks, int self)
      : arena_(arena), health_(health), n_(ranks), self_(self) {}

  void carry_out(const Collective& collective, const std::function<void()>& meet) {
    using Kind = Collective::Kind;
    if (collective.kind == Kind::all_reduce && copies_whole(collective.range.size_bytes())) {
      reduce_whole(collective, meet);
      return;
    }
    meet();
    switch (collective.kind) {
    case Kind::all_reduce:
      reduce_pieces(collective);
      break;
    case Kind::reduce_scatter:
      reduce_to_owners(collective);
      break;
    case Kind::all_gather:
    case Kind::gather:
      gather_pieces(collective);
      break;
    default:
      broadcast_pieces(collective);
      break;
    }
  }

 private:
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
    return bytes <= (n_ <= k_most_ranks_whole ? k_whole_bytes : k_short_bytes);
  }

  bool slot_is_free(std::uint64_t piece) const {
    for (int position = 0; position < n_ && piece >= k_slots; ++position) {
      if (arena_.stages(position).copied_out.load() <= piece - k_slots) {
        return false;
      }
    }
    return true;
  }

  void reduce_whole(const Collective& collective, const std::function<void()>& meet) {
    const std::span<std::byte> bytes = collective.range.bytes();
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
    meet();
    for (std::size_t i = 0; i < count; ++i) {
      if (copied == i) {
        await_slot(base + i);
      }
      if (copy_ahead()) {
        arena_.signal();
      }
      await_all(&Stages::copied_in, base + i);
      const std::size_t first = i * k_piece_bytes / size_of(collective.range.dtype());
      sum_staged(
          collective, first, part(i).size() / size_of(collective.range.dtype()),
          [&](int position, std::size_t /*first*/) { return arena_.slot(position, base + i); });
      pass(&Stages::copied_out, base + i);
    }
  }

  /// Sums values [first, first + count) of this rank's buffer, and the staged ones of the others,
  /// in the ring's order, into its own buffer, and also into `also`.
  template <typename Staged>
  void sum_staged(const Collective& collective, std::size_t first, std::size_t count,
                  const Staged& staged, std::byte* also = nullptr) {
    const Chunks chunks(collective, n_);
    const std::size_t size = size_of(collective.range.dtype());
    const std::size_t origin = first;
    while (count > 0) {
      const int chunk = chunks.holding(first);
      const std::size_t part = std::min(count, chunks.begin(chunk + 1) - first);
      in_.clear();
      for (int k = 0; k < n_; ++k) {
        const int position = (chunks.owner(chunk) + 1 + k) % n_;
        in_.push_back(position == self_ ? collective.range.data() + first * size
                                        : staged(position, origin) + (first - origin) * size);
      }
      out_.assign(1, collective.range.data() + first * size);
      if (also != nullptr) {
        out_.push_back(also + (first - origin) * size);
      }
      sum_values(collective.range.dtype(), collective.wire, out_, in_, part);
      first += part;
      count -= part;
    }
  }

  /// A rank works at three pieces by turns, in slots of all ranks: small ones stay in its L2 cache.
  void reduce_pieces(const Collective& collective) {
    const Range& range = collective.range;
    const std::size_t size = size_of(range.dtype());
    const std::size_t count = (range.size_bytes() + k_reduced_bytes - 1) / k_reduced_bytes;
    const std::uint64_t base = pieces_;
    pieces_ += count;
    const std::size_t piece_values = k_reduced_bytes / size;
    /// The share of piece i that a rank reduces: its offset in the buffer, and its length.
    const auto share = [&](std::size_t i, int position) {
      const std::size_t first = i * piece_values;
      const Chunks shares(std::min(piece_values, range.count() - first), n_);
      return std::pair(first + shares.begin(position), shares.size(position));
    };
    const auto staged = [&](std::size_t i, int of, std::size_t first) {
      return arena_.slot(of, base + i) + (first - i * piece_values) * size;
    };
    for (std::size_t turn = 0; turn < count + 2; ++turn) {
      if (turn < count) { // A
        await_slot(base + turn);
        for (int to = 0; to < n_; ++to) {
          const auto [first, length] = share(turn, to);
          if (to != self_) {
            copy_bytes(staged(turn, self_, first), range.data() + first * size, length * size);
          }
        }
        pass(&Stages::copied_in, base + turn);
      }
      if (turn >= 1 && turn - 1 < count) { // B
        const std::size_t i = turn - 1;
        await_all(&Stages::copied_in, base + i);
        const auto [first, length] = share(i, self_);
        sum_staged(
            collective, first, length,
            [&](int position, std::size_t at) { return staged(i, position, at); },
            staged(i, self_, first));
        pass(&Stages::reduced, base + i);
      }
      if (turn >= 2) { // C
        const std::size_t i = turn - 2;
        await_all(&Stages::reduced, base + i);
        for (int from = 0; from < n_; ++from) {
          const auto [first, length] = share(i, from);
          if (from != self_) {
            copy_bytes(range.data() + first * size, staged(i, from, first), length * size);
          }
        }
        pass(&Stages::copied_out, base + i);
      }
    }
  }

  /// Piece i holds a segment of every chunk: each rank leaves those of the others' chunks in its
  /// slot, and adds up its own from all slots.
  void reduce_to_owners(const Collective& collective) {
    const Range& range = collective.range;
    const Chunks chunks(collective, n_);
    const std::size_t size = size_of(range.dtype());
    const std::size_t room = k_piece_bytes / static_cast<std::size_t>(chunks.number());
    const std::size_t segment = room / k_cache_line * k_cache_line / size; // Values.
    const std::size_t count =
        range.count() == 0 ? 0 : (std::min(chunks.length(), range.count()) + segment - 1) / segment;
    const std::uint64_t base = pieces_;
    pieces_ += count;
    /// The values of piece i of a chunk.
    const auto part = [&](std::size_t i, int chunk) {
      const std::size_t first = std::min(chunks.size(chunk), i * segment);
      return Chunks::Part{chunks.begin(chunk) + first,
                          std::min(segment, chunks.size(chunk) - first)};
    };
    const auto staged = [&](std::size_t i, int of, int chunk) {
      return arena_.slot(of, base + i) + static_cast<std::size_t>(chunk) * segment * size;
    };
    for (std::size_t turn = 0; turn < count + 1; ++turn) {
      if (turn < count) { // A
        await_slot(base + turn);
        for (int chunk = 0; chunk < chunks.number(); ++chunk) {
          if (chunks.owner(chunk) != self_) {
            const auto [first, length] = part(turn, chunk);
            copy_bytes(staged(turn, self_, chunk), range.data() + first * size, length * size);
          }
        }
        pass(&Stages::copied_in, base + turn);
      }
      if (turn >= 1) { // B
        const std::size_t i = turn - 1;
        await_all(&Stages::copied_in, base + i);
        for (int chunk = 0; chunk < chunks.number(); ++chunk) {
          if (chunks.owner(chunk) == self_) {
            const auto [first, length] = part(i, chunk);
            sum_staged(collective, first, length, [&](int position, std::size_t /*first*/) {
              return staged(i, position, chunk);
            });
          }
        }
        pass(&Stages::copied_out, base + i);
      }
    }
  }

  /// Every rank leaves its own in its slot, a piece at a time, and takes the others' from theirs;
  /// to gather, the root alone.
  void gather_pieces(const Collective& collective) {
    const Range& range = collective.range;
    const Chunks chunks(collective, n_);
    const std::size_t most = k_piece_bytes / size_of(range.dtype());
    std::vector<std::vector<Chunks::Part>> pieces(static_cast<std::size_t>(n_)); // By position.
    std::size_t count = 0;
    for (int position = 0; position < n_; ++position) {
      auto& own = pieces[static_cast<std::size_t>(position)];
      for (const Chunks::Part& part : chunks.owned_by(position)) {
        for (std::size_t at = 0; at < part.count; at += most) {
          own.push_back({part.first + at, std::min(most, part.count - at)});
        }
      }
      count = std::max(count, own.size());
    }
    const std::uint64_t base = pieces_;
    pieces_ += count;
    const bool takes = collective.kind == Collective::Kind::all_gather || self_ == collective.root;
    /// The place in the buffer of a position's piece i; empty if it has fewer pieces.
    const auto place = [&](int position, std::size_t i) {
      const auto& own = pieces[static_cast<std::size_t>(position)];
      return i < own.size() ? range.part(own[i].first, own[i].count) : range.part(0, 0);
    };
    const auto copy_rounded = [&](std::byte* to, const Range& from) {
      const std::byte* const source = from.data();
      sum_values(from.dtype(), collective.wire, {&to, 1}, {&source, 1}, from.count());
    };
    for (std::size_t turn = 0; turn < count + 1; ++turn) {
      if (turn < count) {
        await_slot(base + turn);
        const Range own = place(self_, turn);
        if (collective.wire != WireType::fp32) {
          copy_rounded(own.data(), own);
        }
        copy_bytes(arena_.slot(self_, base + turn), own.data(), own.size_bytes());
        pass(&Stages::copied_in, base + turn);
      }
      if (turn >= 1) {
        const std::uint64_t piece = base + turn - 1;
        for (int k = 1; takes && k < n_; ++k) { // Each begins with another.
          const int from = (self_ + k) % n_;
          const Range theirs = place(from, turn - 1);
          if (theirs.count() > 0) {
            arena_.wait_until(health_,
                              [&] { return arena_.stages(from).copied_in.load() > piece; });
            copy_bytes(theirs.data(), arena_.slot(from, piece), theirs.size_bytes());
          }
        }
        pass(&Stages::copied_out, piece);
      }
    }
  }

  /// In a scatter, a rank takes only its own chunks.
  void broadcast_pieces(const Collective& collective) {
    const std::span<std::byte> bytes = collective.range.bytes();
    const int root = collective.root;
    const std::size_t size = size_of(collective.range.dtype());
    std::vector<Chunks::Part> wanted = {{0, collective.range.count()}};
    if (collective.kind == Collective::Kind::scatter) {
      wanted = Chunks(collective, n_).owned_by(self_);
    }
    const std::size_t count = (bytes.size() + k_piece_bytes - 1) / k_piece_bytes;
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint64_t piece = pieces_++;
      const std::size_t begin = i * k_piece_bytes;
      const std::size_t end = std::min(bytes.size(), begin + k_piece_bytes);
      if (self_ == root) {
        await_slot(piece);
        copy_bytes(arena_.slot(root, piece), bytes.data() + begin, end - begin);
        pass(&Stages::copied_in, piece);
      } else {
        arena_.wait_until(health_, [&] { return arena_.stages(root).copied_in.load() > piece; });
        for (const Chunks::Part& part : wanted) {
          const std::size_t first = std::max(begin, part.first * size);
          const std::size_t last = std::min(end, (part.first + part.count) * size);
          if (first < last) {
            copy_bytes(bytes.data() + first, arena_.slot(root, piece) + (first - begin),
                       last - first);
          }
        }
      }
      pass(&Stages::copied_out, piece);
    }
  }

  const SharedArena& arena_;
  Health& health_;
  int n_;
  int self_;
  std::uint64_t pieces_ = 0;
  std::vector<const std::byte*> in_;
  std::vector<std::byte*> out_;
};

Staged::Staged(const SharedArena& arena, Health& health, int ranks, int self)
    : pieces_(std::make_unique<Pieces>(arena, health, ranks, self)) {}
Staged::~Staged() = default;

void Staged::carry_out(const Collective& collective, const std::function<void()>& meet) {
  pieces_->carry_out(collective, meet);
}

} // namespace trainer
