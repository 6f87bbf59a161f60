#include <doctest/doctest.h>

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <string>
#include <vector>

#include "tests/unit/trainer/collectives/ranks.h"
#include "tests/unit/trainer/temp_folder.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/collectives/forwarding.h"
#include "trainer/collectives/single_rank.h"
#include "trainer/data/dataset.h"
#include "trainer/data/loader.h"
#include "trainer/device/cpu/cpu_device.h"
#include "trainer/files.h"
#include "trainer/strategy/gathered.h"
#include "trainer/strategy/training_step.h"

using namespace trainer;

namespace {

using Rule = OptimizerOptions::Rule;

constexpr std::uint64_t k_seed = 4;

struct Run {
  int ranks = 3;
  ModelOptions model = {};
  OptimizerOptions optimizer = {};
  StepOptions step = {.buckets = 1 << 14};
  std::uint64_t samples = 0;    ///< To stop at, with a shorter last step; 0: six whole ones.
  std::string checkpoints = {}; ///< Where it is saved at the end.
  Offload offload = {};
  Precision precision = Precision::fp32;
};

struct Learned {
  std::vector<float> parameters;
  double loss = 0;

  bool operator==(const Learned&) const = default;
};

/// Counts bytes of parameters that are gathered, on rank 0.
class Counting final : public ForwardingCommunicator {
 public:
  using Communicator::start;
  using ForwardingCommunicator::ForwardingCommunicator;
  Ticket start(Collective collective) override {
    if (rank() == 0 && collective.name == "parameters") {
      gathered += collective.range.size_bytes();
    }
    return ForwardingCommunicator::start(std::move(collective));
  }

  static inline std::size_t gathered = 0;
};

/// A CPU whose paged memory can be touched only where it is committed: what a GPU's is like.
class StrictDevice final : public CpuDevice {
 public:
  Buffer allocate_paged(std::size_t count) override {
    Buffer made = CpuDevice::allocate_paged(count);
    paged_.push_back(made.span());
    protect(made.span(), true, PROT_NONE);
    return made;
  }
  void commit(std::span<float> part) override { protect(part, true, PROT_READ | PROT_WRITE); }
  void discard(std::span<float> part) override {
    CpuDevice::discard(part);
    protect(part, false, PROT_NONE);
  }

 private:
  /// All pages that hold some of it, or only those that hold nothing else.
  void protect(std::span<float> part, bool outward, int how) const {
    const bool is_paged = std::any_of(paged_.begin(), paged_.end(), [&](std::span<float> all) {
      return part.data() >= all.data() && part.data() < all.data() + all.size();
    });
    if (!is_paged || part.empty()) {
      return;
    }
    const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
    const auto up = [&](std::uintptr_t at) { return (at + page - 1) / page * page; };
    const auto down = [&](std::uintptr_t at) { return at / page * page; };
    const auto begin = reinterpret_cast<std::uintptr_t>(part.data());
    const std::uintptr_t end = begin + part.size_bytes();
    const std::uintptr_t first = outward ? down(begin) : up(begin);
    const std::uintptr_t last = outward ? up(end) : down(end);
    if (first < last) {
      REQUIRE(mprotect(reinterpret_cast<void*>(first), last - first, how) == 0);
    }
  }

  std::vector<std::span<float>> paged_;
};

/// Six steps of 48 samples, by ranks that share as `stage` says.
Learned train(int stage, const Run& run) {
  Learned learned;
  std::mutex mutex;
  test::run_ranks_cleanly(run.ranks, {}, [&](Communicator& inner) {
    Counting communicator(inner);
    const auto rank = static_cast<std::size_t>(communicator.rank());
    const Dataset data = synthetic_dataset(300, 1);
    StrictDevice device;
    Replica replica(fitted(run.model, data), run.optimizer, device, communicator,
                    {stage, run.step.buckets}, run.offload);
    replica.compute_in(run.precision);
    replica.attach(communicator, k_vote_floats);
    replica.initialize(k_seed);
    TrainingStep training(communicator, replica, run.step);
    Loader loader(data.train, device,
                  {48 / static_cast<std::size_t>(run.ranks), communicator.rank(), run.ranks, k_seed,
                   0, 6, run.samples});
    Score score;
    for (const Batch& batch : loader) {
      score += training.run(batch);
    }
    if (!run.checkpoints.empty()) {
      CheckpointSaver saver;
      saver.save(run.checkpoints, replica, {6, 288, k_seed, 300, 48}, communicator);
      saver.wait(communicator);
    }
    std::vector<float> parameters(replica.parameters.begin(), replica.sharding.stage == 3
                                                                  ? replica.parameters.begin()
                                                                  : replica.parameters.end());
    if (replica.sharding.stage == 3) {
      gather_buckets(communicator, device, replica.shards(communicator), replica.own_chunks(),
                     [&](const ArenaRange& /*bucket*/, std::span<const float> values) {
                       parameters.insert(parameters.end(), values.begin(), values.end());
                     });
    }
    const std::lock_guard lock(mutex);
    if (rank == 0) {
      learned.parameters = std::move(parameters);
    } else if (!learned.parameters.empty()) {
      CHECK(learned.parameters == parameters);
    }
    learned.loss += rank == 0 ? score.loss : 0;
  });
  return learned;
}

void check_stages(const Run& run) {
  const Learned whole = train(0, run);
  for (int stage = 1; stage <= most_stage(run.optimizer.rule); ++stage) {
    CAPTURE(stage);
    CHECK(train(stage, run) == whole);
  }
}

/// Pages of `memory` that take some.
double resident(std::span<const float> memory) {
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const std::uintptr_t first = reinterpret_cast<std::uintptr_t>(memory.data()) / page * page;
  const std::uintptr_t last = reinterpret_cast<std::uintptr_t>(memory.data() + memory.size());
  std::vector<unsigned char> pages((last - first + page - 1) / page);
  REQUIRE(mincore(reinterpret_cast<void*>(first), last - first, pages.data()) == 0);
  return static_cast<double>(
             std::count_if(pages.begin(), pages.end(), [](auto it) { return (it & 1) != 0; })) *
         static_cast<double>(page) / static_cast<double>(memory.size_bytes());
}

} // namespace

TEST_CASE("every stage of ZeRO has the bits of stage 0, with any number of ranks") {
  for (const int ranks : {2, 3, 4}) {
    CAPTURE(ranks);
    check_stages({.ranks = ranks});
  }
}

TEST_CASE("every stage of ZeRO has the bits of stage 0, with any optimizer") {
  for (const Rule rule : {Rule::sgd, Rule::adam, Rule::adamw, Rule::lamb, Rule::muon}) {
    CAPTURE(rule_title(rule));
    check_stages({.optimizer = {.rule = rule, .weight_decay = 0.1}});
    check_stages({.optimizer = {.rule = rule, .weight_decay = 0.1, .decays_vectors = false}});
  }
}

TEST_CASE("LAMB and Muon have the bits of stage 0 where a tensor lies in several buckets") {
  for (const Rule rule : {Rule::lamb, Rule::muon}) {
    for (const int ranks : {2, 3}) {
      for (const std::size_t bytes : {std::size_t{1} << 8, std::size_t{1} << 12, k_one_bucket}) {
        CAPTURE(rule_title(rule));
        CAPTURE(ranks);
        CAPTURE(bytes);
        check_stages({.ranks = ranks,
                      .model = {.hidden = {40, 24}},
                      .optimizer = {.rule = rule, .weight_decay = 0.1},
                      .step = {.buckets = bytes, .clip_norm = 0.5}});
      }
    }
    check_stages({.ranks = 2,
                  .model = {.name = "cnn"},
                  .optimizer = {.rule = rule},
                  .step = {.buckets = 1 << 16}});
  }
}

TEST_CASE("where every tensor moves as a whole, ranks send directions in place of parameters") {
  for (const int stage : {1, 2}) {
    CAPTURE(stage);
    Counting::gathered = 0;
    train(stage, {.optimizer = {.rule = Rule::lamb}});
    CHECK(Counting::gathered == 0);
  }
}

TEST_CASE("every stage of ZeRO has the bits of stage 0, where gradients are clipped or added up") {
  check_stages({.step = {.buckets = 1 << 14, .clip_norm = 0.5}});
  check_stages({.step = {.buckets = 1 << 14, .rows_at_once = 5, .clip_norm = 0.5}});
}

TEST_CASE("every stage of ZeRO has the bits of stage 0, of a convolutional network too") {
  check_stages({.ranks = 2, .model = {.name = "cnn"}, .step = {.buckets = 1 << 18}});
}

TEST_CASE("ranks that share parameters come together although their passes are not as many") {
  const Run run{.ranks = 2, .step = {.buckets = 1 << 14, .rows_at_once = 8}};
  Run uneven = run;
  uneven.samples = 5 * 48 + 33; // 17 rows and 16.
  check_stages(uneven);
  Run padded = run;
  padded.samples = 5 * 48 + 1;
  check_stages(padded);
  Run first = run;
  first.samples = 33; // Of the only step: nobody has made a pass before.
  check_stages(first);
}

TEST_CASE("every stage of ZeRO has the bits of stage 0, with what it has in files") {
  const TempFolder folder;
  for (const Rule rule : {Rule::adam, Rule::lamb, Rule::muon}) {
    CAPTURE(rule_title(rule));
    const Run run{.optimizer = {.rule = rule}, .step = {.buckets = 1 << 14, .clip_norm = 0.5}};
    const Learned whole = train(0, run);
    Run offloaded = run;
    offloaded.offload = {folder.path(), folder.path()};
    for (int stage = 0; stage <= most_stage(rule); ++stage) {
      CAPTURE(stage);
      CHECK(train(stage, offloaded) == whole);
    }
  }
  CHECK(std::filesystem::is_empty(folder.path()));
}

TEST_CASE("in 16 bits every stage of ZeRO has the bits of stage 0, and parameters travel in them") {
  const TempFolder folder;
  Counting::gathered = 0;
  train(3, {});
  const std::size_t in_fp32 = Counting::gathered;
  for (const Precision precision : {Precision::bf16, Precision::fp16}) {
    CAPTURE(precision_name(precision));
    Run run{.step = {.buckets = 1 << 14, .clip_norm = 0.5}, .precision = precision};
    const Learned whole = train(0, run);
    for (const int stage : {1, 2, 3}) {
      CAPTURE(stage);
      Counting::gathered = 0;
      CHECK(train(stage, run) == whole);
    }
    CHECK(Counting::gathered == in_fp32 / 2);
    run.offload = {folder.path(), folder.path()};
    CHECK(train(3, run) == whole);
    run.offload = {};
    run.ranks = 1;
    const Learned alone = train(0, run);
    run.offload = {folder.path(), folder.path()};
    CHECK(train(3, run) == alone);
  }
}

TEST_CASE("one rank with its parameters in files has the bits, and the checkpoint, of stage 0") {
  const TempFolder files;
  const auto check = [&](Run run) {
    run.ranks = 1;
    const TempFolder whole;
    run.checkpoints = whole.path();
    const Learned expected = train(0, run);
    CHECK(train(3, run) == expected); // It has all in memory.
    for (const std::string& states : {std::string(), files.path()}) {
      const TempFolder folder;
      run.checkpoints = folder.path();
      run.offload = {states, files.path()};
      CHECK(train(3, run) == expected);
      CHECK(read_file(newest_checkpoint(folder.path()).value()) ==
            read_file(newest_checkpoint(whole.path()).value()));
    }
  };
  check({});
  check({.step = {.buckets = 1 << 14, .rows_at_once = 20, .clip_norm = 0.5}});
  check({.model = {.name = "cnn"}, .step = {.buckets = 1 << 18}});
  check({.optimizer = {.rule = Rule::muon}});
  CHECK(std::filesystem::is_empty(files.path()));
}

TEST_CASE("a folder that cannot hold what is offloaded is named") {
  const auto alone = make_single_rank();
  CpuDevice device;
  const std::string said = message_of<UsageError>([&] {
    const Replica replica({}, {}, device, *alone, {3, 0}, {.parameters = "/nowhere/at-all"});
  });
  CHECK(said == "/nowhere/at-all: no file there for the parameters: No such file or directory");
}

TEST_CASE("a model with fewer parameters than chunks is shared like any other") {
  check_stages({.ranks = 4, .model = {.hidden = {1}}, .step = {.buckets = 1 << 30}});
}

TEST_CASE("what ZeRO gives to the other ranks takes no memory on this one") {
  for (int stage = 1; stage <= 3; ++stage) {
    CAPTURE(stage);
    test::run_ranks_cleanly(4, {}, [&](Communicator& communicator) {
      const Dataset data = synthetic_dataset(100, 1);
      CpuDevice device;
      const StepOptions step{.buckets = 1 << 20};
      Replica replica({.hidden = {1024, 1024}}, {}, device, communicator, {stage, step.buckets});
      replica.attach(communicator);
      replica.initialize(k_seed);
      TrainingStep training(communicator, replica, step);
      Loader loader(data.train, device, {8, communicator.rank(), 4, k_seed, 0, 3});
      for (const Batch& batch : loader) {
        training.run(batch);
      }
      const auto all = static_cast<double>(replica.parameters.size());
      for (const Optimizer::Moment& moment : replica.optimizer.moments()) {
        CHECK(static_cast<double>(moment.values.memory.size()) / all ==
              doctest::Approx(0.25).epsilon(0.05));
      }
      // Chunks share their first and last page with others.
      CHECK(resident(replica.gradients) == doctest::Approx(stage >= 2 ? 0.25 : 1).epsilon(0.05));
      CHECK(resident(replica.parameters) == doctest::Approx(stage == 3 ? 0.25 : 1).epsilon(0.05));
    });
  }
}

TEST_CASE("a checkpoint is the same file whatever ZeRO's stage, and any stage takes it") {
  const TempFolder whole;
  train(0, {.checkpoints = whole.path()});
  const std::string path = newest_checkpoint(whole.path()).value();
  for (int stage = 1; stage <= 3; ++stage) {
    CAPTURE(stage);
    const TempFolder folder;
    train(stage, {.checkpoints = folder.path()});
    CHECK(read_file(newest_checkpoint(folder.path()).value()) == read_file(path));
  }
}
