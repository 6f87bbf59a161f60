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
       .help = "mirrored (replicas of this process), multi-worker or parameter-server, where what "
               "started it has to be such a job; auto: as that is [auto]",
       .group = group,
       .complete = dtrain::Complete::choices,
       .choices = {"auto", "mirrored", "multi-worker", "parameter-server"}},
      {.flags = "--device",
       .target = &o.device,
       .metavar = "DEVICE",
       .help = "auto, cpu or cuda; cuda is an error where there is none [auto]",
       .group = group,
       .complete = dtrain::Complete::choices,
       .choices = {"auto", "cpu", "cuda"}},
      {.flags = "--devices",
       .target = &o.devices,
       .metavar = "LIST",
       .help = "Replicas of this process, a thread each, in lockstep: cpu:0,cpu:1; of several "
               "workers each has as many [one]",
       .group = group},
      {.flags = "--cross-device-ops",
       .target = &o.cross_device_ops,
       .metavar = "HOW",
       .help = "How replicas of one process sum gradients: auto (each a share), "
               "reduction-to-one, hierarchical-copy or nccl [auto]",
       .group = group,
       .complete = dtrain::Complete::choices,
       .choices = {"auto", "reduction-to-one", "hierarchical-copy", "nccl"}},
      {.flags = "--communication",
       .target = &o.communication,
       .metavar = "HOW",
       .help = "What carries gradients between ranks: ring (dtrain's own), mpi (the library of the "
               "mpirun that started them) or nccl (GPUs); auto takes nccl where every rank has a "
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
       .help = "Connections to each neighbour in the ring that packs of 4 MiB and more share "
               "[4 between hosts, 1 within]",
       .group = group,
       .minimum = 1,
       .maximum = 64},
      {.flags = "--bytes-per-pack",
       .target = &o.bytes_per_pack,
       .metavar = "BYTES",
       .help = "Gradients that are reduced together, as soon as backward has them; 0: all at once, "
               "at its end [a 64th of them, but 131072 at least]",
       .group = group,
       .minimum = 0,
       .maximum = k_most_bytes_per_pack},
      {.flags = "--communication-data-type",
       .target = &o.communication_data_type,
       .metavar = "TYPE",
       .help = "What gradients travel as: fp32, or half the bytes, rounded: bf16, or fp16, "
               "which cuts off what is past 65504 and below 6e-8; sums are in fp32 [fp32]",
       .group = group,
       .complete = dtrain::Complete::choices,
       .choices = {"fp32", "bf16", "fp16"}},
      {.flags = "--print-plan",
       .target = &o.print_routes,
       .metavar = "",
       .help = "Do not train: print how this job's ranks would reduce each pack of gradients and "
               "what that sends, and which way they take at which size",
       .group = group},
      {.flags = "--deterministic",
       .target = &o.deterministic,
       .metavar = "",
       .help = "Refuse what would not give the same bits again: --batch-split=speed, "
               "--update=async and --backup-workers; all else always does",
       .group = group},
      {.flags = "--batch-split",
       .target = &o.batch_split,
       .metavar = "HOW",
       .help = "Shares of the global batch: equal, or by the measured speed of each rank, which "
               "trains unlike machines together but not bit for bit the same again [equal]",
       .group = group,
       .complete = dtrain::Complete::choices,
       .choices = {"equal", "speed"}},
      {.flags = "--min-workers",
       .target = &o.min_workers,
       .metavar = "N",
       .help = "Train on while at least N workers are there: when one dies or hangs the others go "
               "on from memory, and one that starts anew joins them [DTRAIN_MIN_WORKERS, else all "
               "workers have to be there]",
       .group = group,
       .minimum = 1,
       .maximum = k_max_workers},
      {.flags = "--max-workers",
       .target = &o.max_workers,
       .metavar = "N",
       .help = "With --min-workers: more than N wait until one goes [DTRAIN_MAX_WORKERS, else no "
               "bound]",
       .group = group,
       .minimum = 1,
       .maximum = k_max_workers},
      {.flags = "--token-file",
       .target = &o.token_file,
       .metavar = "FILE",
       .help =
           "Where ranks are started by hand: a file, readable by you alone, whose first line is "
           "the secret by which the job's ranks know each other [DTRAIN_JOB_TOKEN, else whoever "
           "reaches their ports may join]",
       .group = group,
       .complete = dtrain::Complete::file},
      {.flags = "--rendezvous-timeout",
       .target = &o.rendezvous_timeout,
       .metavar = "SECONDS",
       .help = "For all ranks to arrive [60]",
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
       .help = "Ranks that have waited so long in a collective end, naming who never entered it; "
               "0: never [600]",
       .group = group,
       .minimum = 0,
       .maximum = k_max_seconds},
      {.flags = "--collective-log",
       .target = &o.collective_log,
       .metavar = "DIR",
       .help = "When a rank fails, each writes its last collectives to DIR/rank-N.csv: op, bytes, "
               "name, when entered, how long",
       .group = group,
       .complete = dtrain::Complete::directory},
  };
}

} // namespace trainer
