#include "trainer/options/parts.h"

namespace trainer {
namespace {

constexpr std::int64_t k_max_seconds = 1'000'000;
constexpr std::int64_t k_most_bytes_per_pack = std::int64_t{1} << 30;
constexpr std::int64_t k_max_workers = 4096;

} // namespace

std::vector<dtrain::Option> machine_flags(TrainerOptions& o) {
  const std::string group = "Machine and network";
  return {
      {.flags = "--strategy",
       .target = &o.strategy,
       .metavar = "NAME",
       .help = "Fail if the job was not started with this strategy: mirrored (replicas in this "
               "process), multi-worker or parameter-server; auto accepts any [auto]",
       .group = group,
       .complete = dtrain::Complete::choices,
       .choices = {"auto", "mirrored", "multi-worker", "parameter-server"}},
      {.flags = "--device",
       .target = &o.device,
       .metavar = "DEVICE",
       .help = "auto (GPUs if every rank has a usable one, else CPUs), cpu, or cuda (also gpu), "
               "which fails if there is no GPU; a rank takes the GPU at LOCAL_RANK in "
               "CUDA_VISIBLE_DEVICES, or the only one there [auto]",
       .group = group,
       .complete = dtrain::Complete::choices,
       .choices = {"auto", "cpu", "cuda", "gpu"}},
      {.flags = "--devices",
       .target = &o.devices,
       .metavar = "LIST",
       .help = "Replicas in this process, one thread each, trained in step, such as cpu:0,cpu:1 or "
               "gpu:0,gpu:1; every worker needs the same number [one]",
       .group = group},
      {.flags = "--cross-device-ops",
       .target = &o.cross_device_ops,
       .metavar = "HOW",
       .help =
           "How replicas in one process sum gradients: nccl (GPUs), reduction-to-one, "
           "hierarchical-copy, or auto: nccl if it is found, else each replica sums a share [auto]",
       .group = group,
       .complete = dtrain::Complete::choices,
       .choices = {"auto", "reduction-to-one", "hierarchical-copy", "nccl"}},
      {.flags = "--communication",
       .target = &o.communication,
       .metavar = "HOW",
       .help = "Library that reduces gradients between ranks: ring (dtrain's own), mpi (that of "
               "the mpirun that started them) or nccl (GPUs); auto takes nccl if every rank has a "
               "GPU, else ring [auto]",
       .group = group,
       .complete = dtrain::Complete::choices,
       .choices = {"auto", "ring", "nccl", "mpi"}},
      {.flags = "--transport",
       .target = &o.transport,
       .metavar = "TRANSPORT",
       .help = "How the ring's ranks exchange gradients: auto, shm (one host) or tcp [auto]",
       .group = group,
       .complete = dtrain::Complete::choices,
       .choices = {"auto", "shm", "tcp"}},
      {.flags = "--tcp-streams",
       .target = &o.tcp_streams,
       .metavar = "N",
       .help = "TCP connections to each neighbour in the ring, used together for packs of 4 MiB "
               "and more [4 between hosts, 1 within]",
       .group = group,
       .minimum = 1,
       .maximum = 64},
      {.flags = "--bytes-per-pack",
       .target = &o.bytes_per_pack,
       .metavar = "BYTES",
       .help = "Size of a pack (bucket), the gradients that are reduced together while backward "
               "continues; 0: all at once, after backward [a 64th of them, but at least 131072]",
       .group = group,
       .minimum = 0,
       .maximum = k_most_bytes_per_pack},
      {.flags = "--communication-data-type",
       .target = &o.communication_data_type,
       .metavar = "TYPE",
       .help = "Type in which gradients are sent: fp32, or with half the bytes bf16, or fp16, "
               "which clamps at 65504 and underflows below 6e-8; sums are in fp32 [fp32]",
       .group = group,
       .complete = dtrain::Complete::choices,
       .choices = {"fp32", "bf16", "fp16"}},
      {.flags = "--print-plan",
       .target = &o.print_routes,
       .metavar = "",
       .help = "Do not train: print how this job's ranks would reduce each pack of gradients, how "
               "much they would send, and which algorithm is used from which size on",
       .group = group},
      {.flags = "--deterministic",
       .target = &o.deterministic,
       .metavar = "",
       .help = "Refuse options that make runs differ: --batch-split=speed, --update=async and "
               "--backup-workers; without these, runs are bit-identical anyway",
       .group = group},
      {.flags = "--cuda-launch-blocking",
       .target = &o.cuda_launch_blocking,
       .metavar = "",
       .help = "Wait for every kernel on a GPU, so that an error in one is reported under its own "
               "name; slow, and without CUDA graphs [CUDA_LAUNCH_BLOCKING=1]",
       .group = group},
      {.flags = "--batch-split",
       .target = &o.batch_split,
       .metavar = "HOW",
       .help = "How the global batch is split: equal, or by the measured speed of each rank "
               "(speed), for unlike machines; runs are then not bit-identical [equal]",
       .group = group,
       .complete = dtrain::Complete::choices,
       .choices = {"equal", "speed"}},
      {.flags = "--min-workers",
       .target = &o.min_workers,
       .metavar = "N",
       .help = "Elastic training: continue while at least N workers are left; when one dies or "
               "hangs, the others continue from memory (at --zero-stage=1 to 3 from the last "
               "checkpoint), and a restarted one joins them [DTRAIN_MIN_WORKERS, else all workers "
               "are needed]",
       .group = group,
       .minimum = 1,
       .maximum = k_max_workers},
      {.flags = "--max-workers",
       .target = &o.max_workers,
       .metavar = "N",
       .help = "With --min-workers: at most N train at a time, others wait [DTRAIN_MAX_WORKERS, "
               "else no limit]",
       .group = group,
       .minimum = 1,
       .maximum = k_max_workers},
      {.flags = "--token-file",
       .target = &o.token_file,
       .metavar = "FILE",
       .help = "For ranks started by hand: a file, readable only by you, whose first line is the "
               "secret that the job's ranks share [DTRAIN_JOB_TOKEN, else anyone who reaches their "
               "ports may join]",
       .group = group,
       .complete = dtrain::Complete::file},
      {.flags = "--rendezvous-timeout",
       .target = &o.rendezvous_timeout,
       .metavar = "SECONDS",
       .help = "How long to wait for all ranks to arrive [60]",
       .group = group,
       .minimum = 1,
       .maximum = k_max_seconds},
      {.flags = "--peer-timeout",
       .target = &o.peer_timeout,
       .metavar = "SECONDS",
       .help = "Silence after which a rank counts as dead [8]",
       .group = group,
       .minimum = 1,
       .maximum = k_max_seconds},
      {.flags = "--collective-timeout",
       .target = &o.collective_timeout,
       .metavar = "SECONDS",
       .help = "Fail a rank that has waited this long in a collective, and name the ranks that "
               "never entered it; 0: never [600]",
       .group = group,
       .minimum = 0,
       .maximum = k_max_seconds},
      {.flags = "--collective-log",
       .target = &o.collective_log,
       .metavar = "DIR",
       .help = "When a rank fails, every rank writes its last collectives to DIR/rank-N.csv: op, "
               "bytes, name, start and duration",
       .group = group,
       .complete = dtrain::Complete::directory},
  };
}

} // namespace trainer
