#include "trainer/collectives/tcp/ring.h"

#include <algorithm>
#include <exception>
#include <list>
#include <memory>
#include <thread>

#include <fmt/format.h>

#include "trainer/collectives/memory.h"
#include "trainer/collectives/reduce.h"
#include "trainer/collectives/tcp/steps.h"

namespace trainer {
namespace {

constexpr std::size_t k_slice = 256UL * 1024;
/// Their steps take turns, so that none waits for another.
constexpr std::size_t k_slices_at_once = 4;
constexpr std::size_t k_long = 4UL << 20;           ///< Bytes that are worth a thread a stream.
constexpr std::size_t k_short_of_two = 64UL * 1024; ///< Bytes that two ranks swap whole.
constexpr std::size_t k_short = 8UL * 1024;         ///< The same for more ranks.

class Ring final : public Carrier {
 public:
  Ring(std::vector<RingLinks> streams, Health& health)
      : position_(streams.front().position), n_(static_cast<int>(streams.front().members.size())) {
    for (RingLinks& links : streams) {
      runners_.push_back(std::make_unique<StepRunner>(std::move(links), health));
    }
  }

  std::string describe() const override {
    return runners_.size() == 1 ? "ring over TCP"
                                : fmt::format("ring over TCP, {} streams", runners_.size());
  }

  Route route(std::size_t bytes, WireType wire) const override {
    const auto size = static_cast<double>(bytes);
    if (goes_round_whole(bytes)) {
      return {"direct: whole to every rank, fp32, each adds up", (n_ - 1) * size};
    }
    const std::size_t streams = streams_for(bytes);
    return {fmt::format("ring: reduce-scatter and all-gather, {}, a slice of each chunk at a time",
                        streams == 1 ? "one TCP stream" : fmt::format("{} TCP streams", streams)),
            2 * (n_ - 1) * size / n_ / (wire == WireType::fp32 ? 1 : 2)};
  }

  std::span<float> allocate(std::size_t count) override {
    std::span<float> floats = memory_.emplace_back(count).floats();
    Collective collective;
    collective.kind = Collective::Kind::allocate;
    collective.range = floats;
    carry_out(std::move(collective));
    return floats;
  }

  void carry_out(Collective collective) override {
    header_ = CollectiveHeader(collective, done_);
    switch (collective.kind) {
    case Collective::Kind::all_reduce:
    case Collective::Kind::reduce_scatter:
    case Collective::Kind::all_gather:
      carry_out_halves(collective);
      break;
    case Collective::Kind::broadcast:
      broadcast(collective.range.bytes(), collective.root);
      break;
    case Collective::Kind::gather: // Within a host only.
    case Collective::Kind::scatter:
    case Collective::Kind::barrier:
    case Collective::Kind::allocate:
      go_round(std::as_writable_bytes(std::span(&token_, 1)));
      break;
    }
    ++done_;
  }

 private:
  int wrap(int position) const { return ((position % n_) + n_) % n_; }

  bool goes_round_whole(std::size_t bytes) const { return bytes <= longest_whole(n_); }

  std::size_t streams_for(std::size_t bytes) const { return bytes < k_long ? 1 : runners_.size(); }

  void carry_out_halves(const Collective& collective) {
    const Chunks chunks(collective, n_);
    if (collective.kind == Collective::Kind::all_reduce &&
        goes_round_whole(collective.range.size_bytes())) {
      go_round(collective.range.bytes());
      add_up(collective, chunks);
      return;
    }
    const Halves halves = {collective.kind == Collective::Kind::all_gather ? n_ - 1 : 0,
                           collective.kind == Collective::Kind::reduce_scatter ? n_ - 1
                                                                               : 2 * (n_ - 1)};
    const Parts parts = parts_of(chunks);
    if (collective.wire == WireType::fp32) {
      go_halves(halves, parts, collective.range);
    } else { // Float32 values only.
      go_halves(halves, parts, collective.range, wire_kernels(collective.wire));
    }
  }

  /// Steps [first, last) of the ring's 2(n-1): those before n-1 reduce and scatter, the others
  /// gather.
  struct Halves {
    int first;
    int last;
  };

  /// What each position owns: one chunk, or, where chunks belong to more ranks than this ring has,
  /// several parts.
  using Parts = std::vector<std::vector<Chunks::Part>>;
  Parts parts_of(const Chunks& chunks) const {
    Parts parts;
    for (int position = 0; position < n_; ++position) {
      parts.push_back(chunks.owned_by(position));
    }
    return parts;
  }
  const std::vector<Chunks::Part>& of(const Parts& parts, int position) const {
    return parts[static_cast<std::size_t>(wrap(position))];
  }

  void go_halves(const Halves& halves, const Parts& parts, const Range& range) {
    const auto place = [&](const Chunks::Part& part) {
      return range.part(part.first, part.count).bytes();
    };
    run_streams(range.size_bytes(), [&](std::size_t stream, std::size_t streams) {
      return steps_of(halves, parts, place, stream, streams, [&](Step& step, int s) {
        step.action = s < n_ - 1 ? Step::Action::add : Step::Action::store;
      });
    });
  }

  /// The same with 16-bit values on the wire, which have a buffer of their own.
  void go_halves(const Halves& halves, const Parts& parts, const Range& range,
                 const WireKernels& kernels) {
    auto* floats = reinterpret_cast<float*>(range.data());
    halves_.resize(std::max(halves_.size(), range.count()));
    const auto place = [&](const Chunks::Part& part) {
      return std::as_writable_bytes(std::span(halves_).subspan(part.first, part.count));
    };
    // The part that this rank sends first.
    for (const Chunks::Part& part : of(parts, position_ - 1 - halves.first)) {
      kernels.narrow(halves_.data() + part.first, floats + part.first, part.count);
    }
    run_streams(range.size_bytes(), [&](std::size_t stream, std::size_t streams) {
      return steps_of(halves, parts, place, stream, streams, [&](Step& step, int s) {
        const auto* received = reinterpret_cast<const std::uint16_t*>(step.receive.data());
        step.floats = step.receive.empty() ? nullptr : floats + (received - halves_.data());
        step.action = s < n_ - 1 ? Step::Action::add_wire : Step::Action::widen_wire;
      });
    });
    for (const Chunks::Part& part : of(parts, position_)) {
      kernels.widen(floats + part.first, halves_.data() + part.first, part.count);
    }
  }

  /// Runs the steps of all streams at once: the first in this thread, the others each in one of
  /// their own.
  template <typename StepsOf>
  void run_streams(std::size_t bytes, const StepsOf& steps_of) {
    const std::size_t streams = streams_for(bytes);
    std::vector<std::exception_ptr> failed(streams);
    const auto run = [&](std::size_t stream) {
      try {
        runners_[stream]->run(header_, steps_of(stream, streams));
      } catch (...) {
        failed[stream] = std::current_exception();
      }
    };
    std::vector<std::thread> threads;
    for (std::size_t stream = 1; stream < streams; ++stream) {
      threads.emplace_back(run, stream);
    }
    run(0);
    for (std::thread& thread : threads) {
      thread.join();
    }
    for (const std::exception_ptr& error : failed) {
      if (error) {
        std::rethrow_exception(error);
      }
    }
  }

  /// The steps of one stream's slices, in rounds: in each round one part of every position goes
  /// round.
  template <typename Place, typename Complete>
  std::vector<Step> steps_of(const Halves& halves, const Parts& parts, const Place& place,
                             std::size_t stream, std::size_t streams, const Complete& complete) {
    std::vector<Step> steps;
    for (std::size_t round = 0;; ++round) {
      const auto part = [&](int position) {
        const std::vector<Chunks::Part>& all = of(parts, position);
        return round < all.size() ? place(all[round]) : std::span<std::byte>();
      };
      std::size_t longest = 0;
      for (int position = 0; position < n_; ++position) {
        longest = std::max(longest, part(position).size());
      }
      if (longest == 0) {
        return steps;
      }
      add_round(steps, halves, longest, part, stream, streams, complete);
    }
  }

  template <typename Part, typename Complete>
  void add_round(std::vector<Step>& steps, const Halves& halves, std::size_t longest,
                 const Part& part, std::size_t stream, std::size_t streams,
                 const Complete& complete) {
    std::vector<std::size_t> slices;
    for (std::size_t i = stream; i < (longest + k_slice - 1) / k_slice; i += streams) {
      slices.push_back(i);
    }
    steps.reserve(steps.size() + slices.size() * 2 * static_cast<std::size_t>(n_));
    for (std::size_t first = 0; first < slices.size(); first += k_slices_at_once) {
      const std::size_t group = std::min(k_slices_at_once, slices.size() - first);
      for (int s = halves.first; s < halves.last; ++s) {
        for (std::size_t i = first; i < first + group; ++i) {
          Step& step = steps.emplace_back();
          step.send = slice(part(position_ - 1 - s), slices[i]);
          step.receive = slice(part(position_ - 2 - s), slices[i]);
          step.forwards = s == halves.first ? Step::k_at_once : steps.size() - 1 - group;
          complete(step, s);
        }
      }
    }
  }

  static std::span<std::byte> slice(std::span<std::byte> chunk, std::size_t i) {
    const std::size_t begin = std::min(chunk.size(), i * k_slice);
    return chunk.subspan(begin, std::min(k_slice, chunk.size() - begin));
  }

  /// Every rank gets every rank's bytes, in gathered_, the place of rank p at p times their length.
  void go_round(std::span<std::byte> bytes) {
    gathered_.resize(bytes.size() * static_cast<std::size_t>(n_));
    const auto place = [&](int position) {
      return std::span(gathered_).subspan(static_cast<std::size_t>(wrap(position)) * bytes.size(),
                                          bytes.size());
    };
    std::copy(bytes.begin(), bytes.end(), place(position_).begin());
    std::vector<Step> steps;
    steps.reserve(2 * static_cast<std::size_t>(n_));
    for (int s = 0; s < n_ - 1; ++s) {
      steps.push_back({place(position_ - s), place(position_ - 1 - s), Step::Action::store,
                       s == 0 ? Step::k_at_once : steps.size() - 1});
    }
    runners_.front()->run(header_, steps);
  }

  void add_up(const Collective& collective, const Chunks& chunks) {
    const Range& range = collective.range;
    std::vector<const std::byte*> in(static_cast<std::size_t>(n_));
    for (int c = 0; c < chunks.number() && range.count() > 0; ++c) {
      std::byte* const to = chunks.of(range, c).data();
      for (int k = 0; k < n_; ++k) {
        in[static_cast<std::size_t>(k)] =
            gathered_.data() +
            static_cast<std::size_t>(wrap(chunks.owner(c) + 1 + k)) * range.size_bytes() +
            (to - range.data());
      }
      sum_values(range.dtype(), collective.wire, {&to, 1}, in, chunks.size(c));
    }
  }

  void broadcast(std::span<std::byte> bytes, int root) {
    const int distance = wrap(position_ - root);
    std::vector<Step> steps(1);
    if (distance == 0) {
      steps[0].send = bytes;
    } else {
      steps[0].receive = bytes;
      if (distance != n_ - 1) {
        steps.push_back({bytes, {}, Step::Action::store, 0});
      }
    }
    runners_.front()->run(header_, steps);
  }

  int position_;
  int n_;
  std::vector<std::unique_ptr<StepRunner>> runners_; ///< One per stream.
  std::list<PrivateMemory> memory_;
  std::uint64_t done_ = 0;
  CollectiveHeader header_; ///< Of the current collective.
  std::vector<std::byte> gathered_;
  std::vector<std::uint16_t> halves_; ///< A buffer's values on their way, at the floats' indices.
  std::uint32_t token_ = 0;
};

} // namespace

std::size_t longest_whole(int ranks) { return ranks == 2 ? k_short_of_two : k_short; }

std::unique_ptr<Carrier> make_ring(std::vector<RingLinks> streams, Health& health) {
  return std::make_unique<Ring>(std::move(streams), health);
}

} // namespace trainer
