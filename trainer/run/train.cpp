#include "trainer/run/train.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <functional>
#include <memory>
#include <optional>

#include "trainer/collectives/device_communicator.h"
#include "trainer/data/loader.h"
#include "trainer/device/cpu/kernels.h"
#include "trainer/errors.h"
#include "trainer/files.h"
#include "trainer/forecast/memory_plan.h"
#include "trainer/run/requeue.h"
#include "trainer/run/training_run.h"

namespace trainer {
namespace {

std::string shard_text(const Dataset& data) {
  if (data.train.source->is_stream()) {
    return "; a stream, read in order";
  }
  switch (data.shard) {
  case AutoShard::file:
    return fmt::format("; in this worker's {} files, each worker reads its own", data.files);
  case AutoShard::off:
    return "; every worker reads all";
  default:
    return "";
  }
}

std::string size_text(const Dataset& data) {
  const SampleSource& source = *data.train.source;
  return source.kind().is_text()
             ? fmt::format("rows of {} tokens, of {} words,", source.width(field::Name::ids),
                           with_commas(static_cast<double>(source.kind().vocabulary)))
             : fmt::format("images of {} pixels", source.width(field::Name::images));
}

/// ", bf16 over float32, multiplied by the CPU's instructions"
std::string precision_text(const RunSettings& settings, const Device& device) {
  const auto precision = static_cast<Precision>(settings.precision);
  if (precision == Precision::fp32) {
    return settings.matmul_precision == MatmulPrecision::high ? ", products in TF32" : "";
  }
  const CpuKernels* const cpu = device.cpu_kernels();
  return fmt::format(", {} over float32{}", precision_name(precision),
                     settings.matmul_precision == MatmulPrecision::fp8
                         ? ", multiplied by tensor cores, in fully connected layers as FP8"
                     : !device.is_host() ? ", multiplied by tensor cores"
                     : precision != Precision::bf16 || cpu == nullptr ? ""
                     : cpu->has_bf16 ? ", multiplied by the CPU's instructions for it"
                                     : ", multiplied in float32");
}

std::string place_text(const Dataset& data, const Device& device) {
  return is_kept(*data.train.source, device) ? "; kept in the GPU's memory" : "";
}

void print_choices(const Rank& rank, const RunSettings& settings, const Offload& offload,
                   const Dataset& data, Outputs& outputs) {
  const auto& [cluster, device, communicator, placement] = rank;
  const std::string steps = with_commas(static_cast<double>(settings.steps));
  const bool is_host = device.is_host();
  const auto place_of = [is_host](const char* what, const std::string& folder, bool is_on_host) {
    return !folder.empty()          ? fmt::format(", {} in {}", what, folder)
           : is_on_host && !is_host ? fmt::format(", {} in the host's memory", what)
                                    : "";
  };
  const int stage = stage_taken(static_cast<int>(settings.zero_stage), communicator.world_size(),
                                offload, is_host);
  const std::string zero_text =
      stage == 0
          ? ""
          : fmt::format(", ZeRO stage {}{}", stage,
                        place_of("parameters", offload.parameters, offload.parameters_are_on_host));
  outputs.choices(
      {{"ranks", fmt::format("{} (from {})", communicator.world_size(),
                             cluster.source == "none" ? "no cluster variables" : cluster.source)},
       {"network", communicator.describe() +
                       (settings.wire == 0
                            ? ""
                            : fmt::format("; gradients as {}",
                                          wire_type_name(static_cast<WireType>(settings.wire))))},
       {"device", device.describe() + (placement.empty() ? "" : "; " + placement)},
       {"data", fmt::format("{}: {} {} to train on, {} held out{}{}", data.folder,
                            with_commas(static_cast<double>(data.train.count)), size_text(data),
                            with_commas(static_cast<double>(data.test.count)), shard_text(data),
                            place_text(data, device))},
       {"training",
        fmt::format("{} step{} of {} samples, {} {}{}{}{}, seed {}", steps,
                    settings.steps == 1 ? "" : "s",
                    settings.global_batch > 0
                        ? with_commas(static_cast<double>(settings.global_batch))
                        : fmt::format("{} × {}", cluster.world_size, settings.batch_size),
                    rule_title(static_cast<OptimizerOptions::Rule>(settings.rule)),
                    settings.learning_rate.text(), zero_text,
                    place_of("its states", offload.optimizer, offload.optimizer_is_on_host),
                    precision_text(settings, device), settings.seed)}});
}

/// Shares the state of the run with the other ranks, calls `begun`, and trains to the last step or
/// to a pause. A collective.
bool take_part(TrainingRun& run, const Rank& rank, const Dataset& data, Outputs& outputs,
               int source, bool is_new, const std::function<void()>& begun,
               const std::function<bool()>& wants_pause) {
  run.agree(rank.communicator, source, is_new);
  if (is_new) {
    print_choices(rank, run.settings(), run.offload(), data, outputs);
  }
  run.begin(rank.communicator, outputs, source, is_new);
  begun();
  if (!run.train(rank.communicator, outputs, wants_pause)) {
    return false;
  }
  run.finish(rank.communicator, outputs);
  return true;
}

/// "lost rank 2 (host-b, pid 7); 2 ranks go on from step 120, sample 15,360 (…)"
std::string what_changed(const Generation& generation, const TrainingRun& run,
                         const std::string& why) {
  const int ranks = generation.communicator->world_size();
  std::string text;
  if (!generation.lost.empty()) {
    text += fmt::format("lost {}; ", fmt::join(generation.lost, ", "));
  }
  if (!generation.joined.empty()) {
    text += fmt::format("joined by {}; ", fmt::join(generation.joined, ", "));
  }
  text += fmt::format("{} rank{} from step {}, sample {}", ranks,
                      ranks == 1 ? " continues" : "s continue", run.progress().step,
                      with_commas(static_cast<double>(run.progress().position)));
  return generation.lost.empty() || why.empty() ? text : fmt::format("{} ({})", text, why);
}

/// Before the communicator goes that a run trained with, whatever becomes of the training.
class Leaving {
 public:
  explicit Leaving(TrainingRun& run) : run_(run) {}
  ~Leaving() { run_.leave(); }
  Leaving(const Leaving&) = delete;
  Leaving& operator=(const Leaving&) = delete;

 private:
  TrainingRun& run_;
};

constexpr int k_most_failures = 64;

/// Trains from one rendezvous (elastic/membership.h) to the next, until all samples are consumed.
void train_elastic(const TrainJob& job) {
  const Cluster& cluster = job.ranks.cluster;
  const std::unique_ptr<Device> device = make_device(job.ranks.devices.front(), cluster.local_rank);
  const std::string placement = place_near(*device, job.ranks.comm);
  const Dataset data = find_dataset(job.data, cluster.rank, cluster.world_size);
  Membership membership(cluster, job.ranks.comm, *job.elastic);
  TrainingRun run(job.run, *device, data, {data.train.count, false}, cluster.world_size, true);
  std::unique_ptr<Outputs> outputs;
  bool is_first = false;
  std::uint64_t number = 0; ///< Number of the roster under which the state was shared.
  std::string why;
  int failures = 0; ///< Failures since the state was shared.
  const auto train_generation = [&] {
    const Generation generation =
        membership.meet({number, run.has_state() ? run.progress().step : -1, run.is_complete()});
    if (!generation.communicator) {
      fmt::print("{}\n", generation.is_left_behind
                             ? "the other workers continued without this one, which was stopped or "
                               "cut off, and have finished the job"
                             : "the other workers have finished the job");
      return true;
    }
    std::optional<DeviceCommunicator> of_device;
    if (!device->is_host()) {
      of_device.emplace(*generation.communicator, *device);
    }
    Communicator& communicator = of_device ? *of_device : *generation.communicator;
    const Leaving leaving(run);
    const auto train = [&] {
      if (!outputs || is_first != (communicator.rank() == 0)) {
        is_first = communicator.rank() == 0;
        const std::int64_t last_step = outputs ? outputs->last_step() : -1;
        outputs.reset();
        outputs = std::make_unique<Outputs>(job.outputs, is_first, last_step);
      }
      return take_part(
          run, {cluster, *device, communicator, placement}, data, *outputs, generation.source,
          generation.step < 0,
          [&] {
            number = generation.number;
            failures = 0;
            if (generation.step >= 0) {
              outputs->say(what_changed(generation, run, why));
            }
            why.clear();
          },
          [&] { return is_first && membership.has_newcomers(); });
    };
    if (!telling_peers(communicator, train)) {
      return false;
    }
    membership.set_over();
    return true;
  };
  for (bool is_done = false; !is_done;) {
    try {
      is_done = train_generation();
    } catch (const PeerError& error) {
      if (requeue_is_asked()) {
        throw; // Rank 0 was asked to stop as well, and has saved the state.
      }
      why = error.what();
      if (++failures > k_most_failures) {
        throw; // Ranks that can meet but not connect would retry without end.
      }
    }
  }
}

} // namespace

void train(const TrainJob& job) {
  if (!job.ranks.comm.collective_log.empty()) {
    make_folder(job.ranks.comm.collective_log);
  }
  if (!job.run.checkpoint_dir.empty()) {
    heed_requeue(job.run.save_on_signal);
  }
  if (job.elastic) {
    train_elastic(job);
    return;
  }
  const Cluster& cluster = job.ranks.cluster;
  std::optional<Dataset> data;
  run_ranks(
      job.ranks, [&] { data = find_dataset(job.data, cluster.rank, cluster.world_size); },
      [&](const Rank& rank) {
        Outputs outputs(job.outputs, rank.cluster.rank == 0);
        tell_plan(rank.communicator.world_size(), job.run, *data, rank.device);
        TrainingRun run(job.run, rank.device, *data, all_samples(*data, rank.communicator),
                        rank.cluster.world_size, false);
        take_part(
            run, rank, *data, outputs, 0, true, [] {}, [] { return false; });
      });
}

} // namespace trainer
