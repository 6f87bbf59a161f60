// Workers of parameter servers that compute on a GPU, faked; the servers are threads of this
// process.
#include <doctest/doctest.h>

#include <algorithm>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/cuda_on_cpu/runtime.h"
#include "tests/unit/cuda/gpu.h"
#include "tests/unit/cuda/trained.h"
#include "tests/unit/trainer/strategy/parameter_server/running.h"
#include "tests/unit/variable.h"
#include "trainer/device/cpu/cpu_device.h"
#include "trainer/strategy/parameter_server/served.h"
#include "trainer/strategy/parameter_server/worker.h"

using namespace trainer;
using namespace trainer::test;
using unit::Variable;

namespace {

constexpr std::size_t k_buckets = 4 << 10;
constexpr std::size_t k_one_piece = 1 << 24; ///< Bytes: more than the model has.
constexpr std::size_t k_pass_rows = 8;       ///< In a pass, of two a step.

/// Most of its gradients are there before backward comes to the first layer.
PsJob job_of(std::vector<std::string> servers) {
  PsJob job = training_job(std::move(servers), k_buckets, k_pass_rows, k_steps);
  job.run.model.hidden = {8, 64, 64};
  return job;
}

struct Way {
  bool shares_memory = true;
  double clip_norm = 0;
  bool is_sync = true;
  std::size_t buckets = k_buckets;
  std::string network = {}; ///< As describe() says at the end.
};

struct Found {
  std::vector<float> values;
  double loss;
};

Found train_served(Device& device, const Way& way) {
  const Dataset data = synthetic_dataset(96, 1);
  std::list<Running> servers;
  std::vector<std::string> addresses;
  for (int i = 0; i < 2; ++i) {
    addresses.push_back(servers.emplace_back(i).address());
  }
  PsJob job = job_of(addresses);
  job.shared_memory = way.shares_memory;
  job.run.step.clip_norm = way.clip_norm;
  job.run.step.buckets = way.buckets;
  job.policy.sync = way.is_sync ? 1 : 0;
  job.policy.max_staleness = way.is_sync ? -1 : 1;
  Found found;
  {
    PsWorker worker(job, data, device);
    CHECK(worker.client().describe().ends_with(way.network));
    worker.train(k_steps, [](std::int64_t /*step*/, const Score& /*totals*/) {});
    const std::span<float> values = worker.client().parameters();
    found = {{values.begin(), values.end()}, worker.evaluate().loss};
    worker.client().goodbye();
  }
  for (Running& server : servers) {
    CHECK(server.finish() == "");
  }
  return found;
}

/// Notes when the pieces of a step start.
class Watched final : public Exchange {
 public:
  Watched(ParameterClient& client, Replica& replica, const Buckets& buckets)
      : Exchange(replica.device), client_(client), inner_(client, replica, buckets, false) {}
  Updates updates() const override { return inner_.updates(); }
  const std::vector<ArenaRange>& buckets() const override { return inner_.buckets(); }
  ParameterOwner& owner() override { return inner_.owner(); }
  void begin(const Batch& batch) override {
    kernels_before.clear();
    inner_.begin(batch);
  }
  void start(std::size_t bucket) override {
    kernels_before.push_back(cuda_on_cpu::calls("kernel"));
    const std::span<float> first = client_.gradients().subspan(0, buckets().front().last);
    has_first_before_last =
        std::any_of(first.begin(), first.end(), [](float value) { return value != 0; });
    inner_.start(bucket);
  }
  void advance() override { inner_.advance(); }
  void synchronise() override { inner_.synchronise(); }
  const SquareSum* sum_squares() override { return inner_.sum_squares(); }
  void update(const Score& score) override { inner_.update(score); }
  std::int64_t receive() override { return inner_.receive(); }
  void join() override { inner_.join(); }

  std::vector<int> kernels_before;    ///< Put on streams before each piece.
  bool has_first_before_last = false; ///< The host has the first piece when the last one starts.

 private:
  ParameterClient& client_;
  Served inner_;
};

} // namespace

TEST_CASE("a GPU trains with servers to the bits of one piece, however it is sent and how late") {
  const auto gpu = make_gpu();
  for (const Way& way :
       {Way{.network = "2 through shared memory"}, Way{.shares_memory = false, .clip_norm = 0.2},
        Way{.clip_norm = 0.2, .is_sync = false}}) {
    CAPTURE(way.shares_memory);
    CAPTURE(way.is_sync);
    Way in_one_piece = way;
    in_one_piece.buckets = k_one_piece;
    const Found expected = train_served(*gpu, in_one_piece);
    const auto check = [&] {
      const Found found = train_served(*gpu, way);
      CHECK(found.values == expected.values);
      CHECK(found.loss == expected.loss);
    };
    check();
    {
      const Variable is_early("DTRAIN_FAKE_EAGER", "1");
      check();
    }
    {
      const Variable of_kernels("DTRAIN_FAKE_KERNEL_US", "20");
      const Variable of_copies("DTRAIN_FAKE_COPY_US", "200");
      check();
    }
    CpuDevice cpu(portable_kernels());
    CHECK(expected.loss == doctest::Approx(train_served(cpu, way).loss).epsilon(1e-2));
  }
}

TEST_CASE(
    "a GPU that cannot pin shared memory sends to the servers of its host, to the same bits") {
  const auto gpu = make_gpu();
  const Found expected = train_served(*gpu, {.network = "2 through shared memory"});
  const Variable none("DTRAIN_FAKE_REGISTER", "0");
  const Found found = train_served(*gpu, {.network = "0 through shared memory"});
  CHECK(found.values == expected.values);
  CHECK(found.loss == expected.loss);
}

TEST_CASE("a GPU's gradients leave for the servers in the midst of backward, from pinned memory") {
  const std::size_t before = cuda_on_cpu::live();
  for (const bool shares_memory : {true, false}) {
    CAPTURE(shares_memory);
    const Variable is_early("DTRAIN_FAKE_EAGER", "1");
    const auto gpu = make_gpu();
    const Dataset data = synthetic_dataset(300, 1);
    Running server(0);
    PsJob job = job_of({server.address()});
    constexpr std::size_t k_many = 136; // Of fewer, all layers' gradients come from one kernel.
    job.run.step.rows_at_once = k_many;
    job.shared_memory = shares_memory;
    const auto alone = make_single_rank(gpu.get());
    Replica replica(fitted(job.run.model, data), *gpu);
    ParameterClient client(
        job, self_of(job, data.train.count), replica.model->tensors().arena_size(),
        [](const std::string& /*text*/) {}, gpu.get());
    replica.place(client.parameters(), client.gradients());
    replica.model->initialize(k_seed, client.parameters());
    replica.optimizer.set_state(client.connect(), 0, {});
    auto made = std::make_unique<Watched>(client, replica, job.run.step.buckets);
    Watched& watched = *made;
    TrainingStep training(*alone, replica, job.run.step, std::move(made));
    Loader loader(data.train, *gpu, {k_many, 0, 1, k_seed, 0, INT64_MAX},
                  {.leaves_gathering = true});
    auto batch = loader.begin();
    const auto steps = [&](int many) {
      for (int step = 0; step < many; ++step, ++batch) {
        training.run(*batch);
      }
    };
    steps(1);
    CHECK(watched.has_first_before_last);
    REQUIRE(watched.kernels_before.size() > 2);
    CHECK(watched.kernels_before.front() < watched.kernels_before.back());
    steps(2);
    std::map<std::string, int> calls;
    const auto add = [&](int sign) {
      for (const char* name :
           {"pageable", "cudaMemcpyAsync", "cudaEventDestroy", "cudaStreamSynchronize",
            "cudaEventSynchronize", "cudaMalloc", "cudaHostAlloc", "cudaHostRegister"}) {
        calls[name] += sign * cuda_on_cpu::calls(name);
      }
    };
    add(-1);
    steps(2);
    add(1);
    const int pieces = static_cast<int>(watched.buckets().size());
    CHECK(calls["cudaMemcpyAsync"] == 2 * 2 * pieces);
    calls.erase("cudaMemcpyAsync");
    for (const auto& call : calls) {
      CAPTURE(call.first);
      CHECK(call.second == 0);
    }
    training.settle();
    client.goodbye();
    CHECK(server.finish() == "");
  }
  CHECK(cuda_on_cpu::live() == before);
}
