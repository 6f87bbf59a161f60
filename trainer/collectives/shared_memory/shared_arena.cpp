#include "trainer/collectives/shared_memory/shared_arena.h"

#include <climits>
#include <cstring>

#include <fmt/format.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "trainer/device/cpu_set.h"

namespace trainer {
namespace {

static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

constexpr int k_spins_with_own_core = 2000; ///< Some 50 µs.
constexpr int k_spins_sharing_cores = 50;

struct Layout {
  std::size_t epoch, sleepers, entries, stages, posted, slots, end;

  explicit Layout(std::size_t ranks) {
    epoch = k_shared_page;
    sleepers = epoch + k_cache_line;
    entries = sleepers + k_cache_line;
    stages = entries + k_ring_entries * sizeof(Entry);
    posted = stages + ranks * sizeof(Stages);
    const std::size_t posted_end = posted + k_ring_entries * ranks * sizeof(Posted);
    slots = (posted_end + k_shared_page - 1) / k_shared_page * k_shared_page;
    end = slots + ranks * k_slots * k_slot_bytes;
  }
};

} // namespace

std::string Posted::text() const {
  Collective shown;
  shown.kind = kind;
  shown.root = root;
  shown.wire = wire;
  shown.name.assign(name.data(), strnlen(name.data(), name.size()));
  shown.range = {nullptr, bytes / size_of(dtype), dtype};
  if (region == k_ordinary) {
    return shown.text();
  }
  return fmt::format("{} in allocation {} at byte {}", shown.text(), region, offset);
}

std::size_t SharedArena::size(int ranks) { return Layout(static_cast<std::size_t>(ranks)).end; }

SharedArena::SharedArena(const SharedFile& file, int ranks)
    : mapping_(file.map(0, size(ranks))), ranks_(static_cast<std::size_t>(ranks)),
      spins_(ranks <= CpuSet().count() ? k_spins_with_own_core : k_spins_sharing_cores) {
  const Layout layout(ranks_);
  std::byte* base = mapping_.data();
  epoch_ = reinterpret_cast<std::atomic<std::uint32_t>*>(base + layout.epoch);
  sleepers_ = reinterpret_cast<std::atomic<std::uint32_t>*>(base + layout.sleepers);
  entries_ = reinterpret_cast<Entry*>(base + layout.entries);
  stages_ = reinterpret_cast<Stages*>(base + layout.stages);
  posted_ = reinterpret_cast<Posted*>(base + layout.posted);
  slots_ = base + layout.slots;
}

void SharedArena::signal() const {
  if (sleepers_->load() > 0) {
    epoch_->fetch_add(1);
    syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(epoch_), FUTEX_WAKE, INT_MAX, nullptr,
            nullptr, 0);
  }
}

void SharedArena::pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

void SharedArena::sleep(std::uint32_t seen) const {
  constexpr double k_nanoseconds = 1e9;
  timespec limit{};
  limit.tv_nsec = static_cast<long>(k_check_seconds * k_nanoseconds);
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(epoch_), FUTEX_WAIT, seen, &limit, nullptr,
          0);
}

} // namespace trainer
