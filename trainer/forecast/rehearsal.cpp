#include "trainer/forecast/rehearsal.h"

#include <algorithm>
#include <memory>
#include <span>
#include <vector>

#include "trainer/collectives/forwarding.h"
#include "trainer/collectives/single_rank.h"
#include "trainer/device/cpu/cpu_device.h"
#include "trainer/device/ranges.h"
#include "trainer/strategy/gathered.h"
#include "trainer/strategy/reduced.h"
#include "trainer/strategy/whole_tensors.h"

namespace trainer {
namespace {

/// Of an arena that begins with a page, for as many floats: which pages take memory.
class Pages {
 public:
  Pages(std::size_t floats, const Device& device)
      : page_(std::max<std::size_t>(device.page_bytes(), 1)), is_host_(device.is_host()),
        is_here_(pages_up(floats)) {}

  void write(const ArenaRange& range) {
    written_.add(range.first, range.last);
    set(pages_down(range.first), pages_up(range.last), true);
  }
  /// As Device::discard(): a CPU frees pages that are all in the range, a GPU those in which
  /// nothing else is left.
  void discard(const ArenaRange& range) {
    if (is_host_) {
      set(pages_up(range.first), pages_down(range.last), false);
      return;
    }
    written_.remove(range.first, range.last);
    const std::size_t floats = page_ / sizeof(float);
    for (std::size_t page = pages_down(range.first); page < pages_up(range.last); ++page) {
      set(page, page + 1, written_.touches(page * floats, (page + 1) * floats));
    }
  }
  std::size_t bytes() const { return here_ * page_; }

 private:
  std::size_t pages_down(std::size_t floats) const { return floats * sizeof(float) / page_; }
  std::size_t pages_up(std::size_t floats) const {
    return (floats * sizeof(float) + page_ - 1) / page_;
  }
  void set(std::size_t first, std::size_t last, bool here) {
    for (std::size_t page = first; page < last; ++page) {
      here_ += here && !is_here_[page] ? 1 : 0;
      here_ -= !here && is_here_[page] ? 1 : 0;
      is_here_[page] = here;
    }
  }

  std::size_t page_;
  bool is_host_;
  std::vector<bool> is_here_;
  std::size_t here_ = 0;
  Ranges written_; ///< And not discarded since.
};

/// An arena, and its pages.
struct Noted {
  std::span<float> arena;
  Pages& pages;

  bool has(std::span<const float> part) const {
    return part.data() >= arena.data() && part.data() < arena.data() + arena.size();
  }
  ArenaRange place_of(std::span<const float> part) const {
    const auto first = static_cast<std::size_t>(part.data() - arena.data());
    return {first, first + part.size()};
  }
};

/// Copies nothing, as nothing is there.
class IdleStream final : public Stream {
 public:
  explicit IdleStream(Stream& stream) : stream_(stream) {}
  std::unique_ptr<Event> record() override { return stream_.record(); }
  std::unique_ptr<Event> record_timed() override { return stream_.record_timed(); }
  void wait(const Event& /*event*/) override {}
  void copy(const void* /*from*/, void* /*to*/, std::size_t /*bytes*/) override {}
  void clear(void* /*memory*/, std::size_t /*bytes*/) override {}

 private:
  Stream& stream_;
};

/// A device for Gathered, which notes what comes and goes in either arena, and rounds nothing; a
/// communicator of as many ranks, and a file, which bring nothing.
class NotingDevice final : public CpuDevice {
 public:
  NotingDevice(bool is_host, const Noted& parameters, const Noted& halves)
      : is_host_(is_host), parameters_(parameters), halves_(halves),
        kernels_(CpuDevice::kernels()) {
    kernels_.narrow = [](Stream&, std::size_t, DType, const float*, void*) {};
  }
  bool is_host() const override { return is_host_; }
  void commit(std::span<float> part) override {
    const Noted& noted = of(part);
    noted.pages.write(noted.place_of(part));
  }
  void discard(std::span<float> part) override {
    const Noted& noted = of(part);
    noted.pages.discard(noted.place_of(part));
  }
  std::unique_ptr<Stream> make_stream() override { return std::make_unique<IdleStream>(stream()); }
  const Kernels& kernels() const override { return kernels_; }

 private:
  const Noted& of(std::span<const float> part) const {
    return halves_.has(part) ? halves_ : parameters_;
  }

  bool is_host_;
  Noted parameters_;
  Noted halves_;
  Kernels kernels_;
};

class IdleCommunicator final : public ForwardingCommunicator {
 public:
  IdleCommunicator(Communicator& alone, int ranks) : ForwardingCommunicator(alone), ranks_(ranks) {}
  int world_size() const noexcept override { return ranks_; }
  using Communicator::start;
  Ticket start(Collective /*collective*/) override { return 0; }

 private:
  int ranks_;
};

class IdleFile final : public ValueFile {
 public:
  Ticket start_read(std::size_t /*at*/, std::span<float> /*to*/) override { return 0; }
  void wait(Ticket /*ticket*/) override {}
  void read(std::size_t /*at*/, std::span<float> /*to*/) const override {}
  void write(std::size_t /*at*/, std::span<const float> /*from*/) override {}
};

class Rehearsal final : private ParameterOwner {
 public:
  Rehearsal(const RehearsalOptions& options, const Model& model, const Shards& shards,
            const Device& device)
      : options_(options), model_(model), shards_(shards), is_host_(device.is_host()),
        floats_(model.tensors().arena_size()), parameters_(floats_, device),
        gradients_(floats_, device), rounded_(floats_, device), halves_(floats_ / 2, device) {}

  RehearsedStep run() {
    const ArenaRange all = {0, floats_};
    const Buffer arena = Buffer::paged(floats_, DType::f32);
    const bool is_in_halves = options_.is_rounded && (shards_.ranks() > 1 || !is_host_);
    const Buffer halves = Buffer::paged(is_in_halves ? floats_ / 2 : 0, DType::f32);
    const auto alone = make_single_rank();
    NotingDevice device(is_host_, {arena.span(), parameters_}, {halves.span(), halves_});
    IdleCommunicator communicator(*alone, shards_.ranks());
    IdleFile file;
    const bool is_in_file = !options_.offload.parameters.empty();
    const bool is_on_host = !is_host_ && options_.offload.parameters_are_on_host;
    Gathered gathered(communicator, device, model_.units(), shards_,
                      {.parameters = arena.span(), .halves = halves.span()},
                      is_in_file ? OwnChunks{{.file = &file}, is_host_}
                                 : OwnChunks{{arena.span()}, !is_on_host});
    parameters_.write(all);
    if (options_.stage == 3) {
      gathered_ = &gathered;
      gathered.change();
    } else if (options_.is_rounded) {
      rounded_.write(all);
    }
    for (const ArenaRange& own : shards_.own()) {
      gradients_.write(own);
    }
    constexpr int k_steps = 2; // The first one learns in which order units are needed.
    for (int step = 0; step < k_steps; ++step) {
      if (options_.accumulates) {
        gradients_.write(all);
      }
      started_ = given_back_ = final_ = 0;
      gathered.begin_pass();
      model_.rehearse(options_.rows, *this, [&](std::size_t unit) {
        if (is_host_) {
          gradients_.write(model_.units()[unit]);
          look();
        }
      });
      give_back(shards_.buckets().size());
      move_whole_tensors();
      if (gathered_ != nullptr) {
        gathered_->change();
      }
    }
    gathered_ = nullptr;
    return {most_, here()};
  }

 private:
  UnitMemory need(std::size_t unit) override {
    if (gathered_ != nullptr) {
      gathered_->need(unit);
      if (options_.is_rounded) {
        rounded_.write(model_.units()[unit]);
      }
      look();
    }
    return {};
  }

  /// A CPU's gradients take memory as they become final, or are ahead.
  void write(std::size_t unit) override {
    if (!is_host_) {
      gradients_.write(model_.units()[unit]);
      look();
    }
  }

  void done(std::size_t unit) override {
    if (gathered_ != nullptr) {
      gathered_->done(unit);
      if (options_.is_rounded) {
        rounded_.discard(model_.units()[unit]);
      }
    }
  }

  std::size_t granularity() const override { return shards_.buckets().front().size(); }

  /// As TrainingStep::start().
  void final(std::size_t count) override {
    if (is_host_) {
      gradients_.write({final_, count});
    }
    final_ = count;
    look();
    for (; started_ < shards_.buckets().size() && shards_.buckets()[started_].last <= count;) {
      if (!is_host_) {
        gradients_.write(shards_.buckets()[started_]);
        look();
      }
      ++started_;
      give_back(started_ - std::min(started_, k_sums_under_way));
    }
  }

  void give_back(std::size_t buckets) {
    for (; given_back_ < buckets; ++given_back_) {
      discard_others(given_back_);
    }
  }
  void discard_others(std::size_t bucket) {
    const ArenaRange& whole = shards_.buckets()[bucket];
    const ArenaRange own = shards_.own(bucket);
    gradients_.discard({whole.first, own.first});
    gradients_.discard({own.last, whole.last});
  }

  /// As Reduced::update_whole_tensors().
  void move_whole_tensors() {
    move_in_order(
        options_.whole_tensors, shards_.buckets(), k_directions_ahead,
        [&](std::size_t bucket) {
          gradients_.write(shards_.buckets()[bucket]);
          look();
        },
        [](const Tensor& /*tensor*/) {}, [&](std::size_t bucket) { discard_others(bucket); });
  }

  StateBytes here() const {
    return {parameters_.bytes(), gradients_.bytes(), rounded_.bytes() + halves_.bytes()};
  }

  void look() {
    if (const StateBytes now = here(); now.all() > most_.all()) {
      most_ = now;
    }
  }

  const RehearsalOptions& options_;
  const Model& model_;
  const Shards& shards_;
  bool is_host_;
  std::size_t floats_;
  Pages parameters_;
  Pages gradients_;
  Pages rounded_;
  Pages halves_;
  Gathered* gathered_ = nullptr; ///< At stage 3.
  std::size_t started_ = 0;      ///< Buckets,
  std::size_t given_back_ = 0;   ///< and those whose remote part was freed.
  std::size_t final_ = 0;        ///< Gradients.
  StateBytes most_;
};

} // namespace

RehearsedStep rehearse_step(const RehearsalOptions& options, const Model& model,
                            const Shards& shards, const Device& device) {
  return Rehearsal(options, model, shards, device).run();
}

} // namespace trainer
