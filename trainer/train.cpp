#include "trainer/train.h"

#include <fmt/format.h>

#include "trainer/clock.h"
#include "trainer/data/loader.h"
#include "trainer/device/device.h"
#include "trainer/evaluate.h"
#include "trainer/monitor/console.h"
#include "trainer/replica.h"
#include "trainer/strategy/multi_worker.h"

namespace trainer {

void train(const TrainerOptions& options) {
  const Cluster cluster = cluster_from_env();
  const auto communicator = connect(cluster, comm_options(options));
  const Device device = select_device(options.device);
  const CpuKernels& kernels = *device.kernels;
  Console console(cluster.rank != 0, !options.no_progress);
  const Dataset data = load_dataset(options.data);
  const auto batch_size = static_cast<std::size_t>(options.batch_size);
  const auto seed = static_cast<std::uint64_t>(options.seed);

  Replica replica({.inputs = data.train.features, .classes = data.classes}, batch_size,
                  options.learning_rate, kernels, *communicator);
  replica.model.initialize(seed);
  MultiWorker strategy(*communicator, replica.optimizer, replica.gradients,
                       static_cast<std::size_t>(options.bucket_kib) << 10);
  const std::uint64_t end = data.train.count * static_cast<std::uint64_t>(options.epochs);
  Loader loader(data.train, kernels, {batch_size, cluster.rank, cluster.world_size, seed, 0, end});
  Metrics metrics(*communicator);
  std::int64_t step = 0;
  for (const Batch& batch : loader) {
    metrics.add(strategy.step(replica.model, batch));
    step = replica.optimizer.step();
    if (step % options.log_every == 0) {
      console.line(metrics.line(step, double(loader.position()) / double(data.train.count),
                                loader.seconds()),
                   double(options.epochs));
    }
  }
  const Score held_out = evaluate(replica.model, data.test, kernels, batch_size, *communicator);
  console.say(fmt::format("held-out accuracy {:.2f} %",
                          100.0 * double(held_out.correct) / double(held_out.count)));
}

} // namespace trainer
