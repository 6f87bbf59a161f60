#include "trainer/strategy/parameter_server/protocol.h"

#include <limits>

#include <fmt/format.h>

#include "trainer/data/xxh64.h"
#include "trainer/device/host_memory.h"

namespace trainer {
namespace {

constexpr std::size_t k_floats_a_parameter = 4; ///< The parameter, its gradient and two moments.
constexpr std::int64_t k_most_tasks = std::numeric_limits<std::uint16_t>::max();

/// Floats of the largest model that this machine can hold; no memory is allocated for a larger one.
std::size_t most_floats() { return host_memory_bytes() / (k_floats_a_parameter * sizeof(float)); }

/// Rounded up to whole pages.
std::size_t bytes_of_arena(std::size_t floats) {
  return (floats * sizeof(float) + k_shared_page - 1) / k_shared_page * k_shared_page;
}

} // namespace

void check(const WorkerHello& hello) {
  const auto require = [](bool ok, const char* what) {
    if (!ok) {
      throw LinkError(fmt::format("its hello has an impossible {}", what));
    }
  };
  const PsPolicy& policy = hello.policy;
  const RunSettings& settings = hello.settings;
  const auto is_one_of = [](std::int64_t one, std::int64_t all) {
    return one >= 0 && one < all && all <= k_most_tasks;
  };
  require(is_one_of(hello.worker, hello.workers), "worker");
  require(is_one_of(hello.server, hello.servers), "server");
  require(hello.arena <= most_floats(), "arena");
  require(is_one_of(policy.backup_workers, hello.workers) && policy.snapshot_every >= 0, "policy");
  require(settings.wire >= 0 && settings.wire <= static_cast<std::int64_t>(WireType::fp16),
          "type of gradients");
  // The fields that difference() names.
  const auto schedule = settings.learning_rate.schedule;
  require(schedule >= LearningRate::Schedule::constant &&
              schedule <= LearningRate::Schedule::cosine,
          "learning rate schedule");
  require(settings.precision == 0 && settings.matmul_precision == MatmulPrecision::highest &&
              settings.model.back() == 0 && settings.kernels.back() == 0,
          "model");
}

std::string difference(const WorkerHello& a, const WorkerHello& b) {
  std::string found;
  const auto compare = [&](const char* what, const auto& one, const auto& other) {
    if (found.empty() && one != other) {
      found = fmt::format("{} is {} and {}", what, one, other);
    }
  };
  const auto update = [](const PsPolicy& policy) {
    return std::string_view(policy.is_sync() ? "sync" : "async");
  };
  compare("the number of workers", a.workers, b.workers);
  compare("the number of servers", a.servers, b.servers);
  compare("this server's number", a.server, b.server);
  compare("--update", update(a.policy), update(b.policy));
  compare("--backup-workers", a.policy.backup_workers, b.policy.backup_workers);
  compare("--max-staleness", a.policy.max_staleness, b.policy.max_staleness);
  compare("--snapshot-every", a.policy.snapshot_every, b.policy.snapshot_every);
  compare("--communication-data-type", std::string_view(wire_type_name(a.gradients())),
          std::string_view(wire_type_name(b.gradients())));
  if (found.empty()) {
    found = difference(a.settings, b.settings);
  }
  compare("the number of parameters", a.arena, b.arena); // Which a GPU pads otherwise.
  return found;
}

std::string job_text(const WorkerHello& hello) {
  WorkerHello job = hello;
  job.worker = 0;
  job.memory = {};
  const auto* const bytes = reinterpret_cast<const std::uint8_t*>(&job);
  return fmt::format("{:016x}", xxh64({bytes, offsetof(WorkerHello, memory)}, 0));
}

std::size_t SharedArenas::file_size(std::size_t floats) {
  return k_shared_page + 2 * bytes_of_arena(floats);
}

SharedArenas::SharedArenas(const SharedFile& file, std::size_t floats)
    : mapping_(file.map(0, file_size(floats))) {
  std::byte* const first = mapping_.data() + k_shared_page;
  gradients_ = {reinterpret_cast<float*>(first), floats};
  parameters_ = {reinterpret_cast<float*>(first + bytes_of_arena(floats)), floats};
}

} // namespace trainer
