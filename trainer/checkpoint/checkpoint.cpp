#include "trainer/checkpoint/checkpoint.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "trainer/checkpoint/checkpoint_writer.h"
#include "trainer/entropy.h"
#include "trainer/errors.h"
#include "trainer/files.h"
#include "trainer/strategy/gathered.h"

namespace trainer {
namespace {

constexpr const char* k_format = "dtrain-1";

/// An arena that a checkpoint holds: parameters by name, each moment as "adam.m.NAME".
struct SavedArena {
  std::string prefix;
  OwnChunks chunks; ///< Of a whole replica: the arena.
};

std::vector<SavedArena> arenas_of(const Replica& replica) {
  std::vector<SavedArena> arenas = {{"", replica.own_chunks()}};
  for (const Optimizer::Moment& moment : replica.optimizer.moments()) {
    arenas.push_back({moment.name + ".", {moment.values, false}});
  }
  return arenas;
}

/// What passes through memory at a time where no whole arena does.
constexpr std::size_t k_passing = std::size_t{1} << 20;

/// Calls body(at, count) for parts of a range of so many values.
template <typename Body>
void in_parts(std::size_t count, const Body& body) {
  for (std::size_t at = 0; at < count; at += k_passing) {
    body(at, std::min(k_passing, count - at));
  }
}

CheckpointHead head_of(const Progress& progress) {
  std::map<std::string, std::string> metadata = {
      {"format", k_format},
      {"step", std::to_string(progress.step)},
      {"position", std::to_string(progress.position)},
      {"seed", std::to_string(progress.seed)},
      {"samples", std::to_string(progress.samples)},
      {"global_batch", std::to_string(progress.global_batch)}};
  if (const LossScale& scale = progress.loss_scale; !(scale == LossScale{})) {
    metadata["skipped"] = std::to_string(progress.skipped);
    metadata["loss_scale"] = fmt::format("{}", scale.scale);
    metadata["loss_scale_step"] = std::to_string(scale.step);
    metadata["loss_scale_last_overflow"] = std::to_string(scale.last_overflow);
    metadata["loss_scale_hysteresis"] = std::to_string(scale.hysteresis);
  }
  return {progress.step, metadata};
}

/// Copies what this rank owns of each arena, without gaps.
void copy_arenas(Device& device, const std::vector<SavedArena>& arenas, const Shards& shards,
                 std::vector<Buffer>& copies) {
  for (std::size_t i = 0; i < arenas.size(); ++i) {
    if (copies.size() == i) {
      copies.push_back(device.allocate_pinned(shards.own_floats(), DType::f32));
    }
    std::span<float> to = copies[i].span();
    const OwnChunks& chunks = arenas[i].chunks;
    chunks.for_each(shards.own(), [&](std::size_t at, const ArenaRange& range) {
      chunks.values.read(device, at, to.first(range.size()));
      to = to.subspan(range.size());
    });
  }
  device.stream().record()->wait();
}

/// Writes the same at once, through little memory.
void write_arenas(Device& device, const std::vector<SavedArena>& arenas, const Shards& shards,
                  CheckpointWriter& file) {
  const Buffer room(std::min(k_passing, shards.own_floats()));
  for (const SavedArena& arena : arenas) {
    arena.chunks.for_each(shards.own(), [&](std::size_t first, const ArenaRange& range) {
      in_parts(range.size(), [&](std::size_t at, std::size_t count) {
        arena.chunks.values.read(device, first + at, room.span().first(count));
        file.add(room.span().first(count));
      });
    });
  }
}

/// How long to wait for other ranks' parts of a checkpoint.
class WaitLimit {
 public:
  explicit WaitLimit(const std::atomic<bool>& is_over) : is_over_(is_over) {}

  /// Throws Error if `path` has not come in time.
  void operator()(const std::string& path) {
    const auto now = std::chrono::steady_clock::now();
    if (!end_) {
      end_ = now + std::chrono::minutes(10);
    }
    if (is_over_ && !is_short_) { // Those that end too may be about to have theirs written.
      is_short_ = true;
      end_ = now + std::chrono::seconds(2);
    }
    if (now > *end_) {
      throw Error(fmt::format("{}: not written, long after rank 0's own part; see what keeps that "
                              "rank from it, or whether it still sees this folder",
                              path));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }

 private:
  const std::atomic<bool>& is_over_;
  bool is_short_ = false;
  std::optional<std::chrono::steady_clock::time_point> end_;
};

template <typename Number>
Number read_metadata(const CheckpointFile& file, const char* key,
                     std::optional<Number> otherwise = std::nullopt) {
  const auto it = file.metadata().find(key);
  if (it == file.metadata().end() && otherwise) {
    return *otherwise;
  }
  const std::string text = it == file.metadata().end() ? "" : it->second;
  Number number{};
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || stop != text.data() + text.size()) {
    throw DataError(fmt::format("{}: metadata {} is missing or no number", file.path(), key));
  }
  return number;
}

Progress read_progress(const CheckpointFile& file, const Progress& expected) {
  const auto format = file.metadata().find("format");
  if (format == file.metadata().end() || format->second != k_format) {
    throw DataError(fmt::format("{}: no checkpoint of dtrain-trainer (metadata format is not {})",
                                file.path(), k_format));
  }
  const LossScale& start = expected.loss_scale; // Where the run so far was one in float32.
  return {read_metadata<std::int64_t>(file, "step"),
          read_metadata<std::uint64_t>(file, "position"),
          read_metadata<std::uint64_t>(file, "seed"),
          read_metadata<std::uint64_t>(file, "samples"),
          read_metadata<std::uint64_t>(file, "global_batch"),
          read_metadata(file, "skipped", std::optional<std::int64_t>(0)),
          {read_metadata(file, "loss_scale", std::optional(start.scale)),
           read_metadata(file, "loss_scale_step", std::optional(start.step)),
           read_metadata(file, "loss_scale_last_overflow", std::optional(start.last_overflow)),
           read_metadata(file, "loss_scale_hysteresis", std::optional(start.hysteresis))}};
}

void check_same_run(const std::string& path, const Progress& saved, const Progress& expected) {
  if (saved.seed != expected.seed) {
    throw UsageError(
        fmt::format("{}: saved with --seed={}; give the same to continue it", path, saved.seed));
  }
  if (saved.samples != expected.samples) {
    throw UsageError(fmt::format("{}: saved with {} training samples, --data has {}; give the same "
                                 "data to continue it",
                                 path, saved.samples, expected.samples));
  }
}

} // namespace

std::optional<std::string> newest_checkpoint(const std::string& folder) {
  for (const NumberedFile& found : numbered_files(folder)) {
    if (has_manifest(found.path)) {
      return found.path;
    }
  }
  return std::nullopt;
}

bool is_saved(const std::string& folder, std::int64_t step) {
  const std::vector<NumberedFile> files = numbered_files(folder);
  return std::any_of(files.begin(), files.end(), [&](const NumberedFile& found) {
    return found.number == step && has_manifest(found.path);
  });
}

std::optional<std::string>
newest_whole_checkpoint(const std::string& folder,
                        const std::function<void(const std::string&)>& say) {
  for (const NumberedFile& found : numbered_files(folder)) {
    const std::string wrong = what_is_wrong(found.path);
    if (wrong.empty()) {
      return found.path;
    }
    say(fmt::format("{}: {}; trying the one before", found.path, wrong));
  }
  return std::nullopt;
}

bool CheckpointSaver::meet(const std::string& folder, Communicator& communicator) {
  auto writers = random_value<std::uint64_t>();
  const auto probe = [&] { // A name that remove_unfinished() knows.
    return std::filesystem::path(folder) / fmt::format("step-.tmp.{:016x}", writers);
  };
  if (communicator.rank() == 0) {
    make_folder(folder);
    std::ofstream(probe()) << '\n';
  }
  communicator.broadcast(std::as_writable_bytes(std::span(&writers, 1)), 0, "checkpoint folder");
  std::error_code error;
  const bool is_seen = std::filesystem::exists(probe(), error) && access(folder.c_str(), W_OK) == 0;
  float seen = is_seen ? 1 : 0;
  communicator.all_reduce(std::span(&seen, 1), "checkpoint folder");
  if (communicator.rank() == 0) {
    std::filesystem::remove(probe(), error);
  }
  writers_ = seen == static_cast<float>(communicator.world_size()) ? writers : 0;
  return has_met();
}

void CheckpointSaver::save(const std::string& folder, const Replica& replica,
                           const Progress& progress, Communicator& communicator, std::size_t keep) {
  finish(communicator);
  const std::vector<SavedArena> arenas = arenas_of(replica);
  const bool is_shared = replica.sharding.stage > 0;
  const bool is_in_parts = is_shared && has_met() && communicator.world_size() > 1;
  const int rank = communicator.rank();
  // A whole checkpoint in one file is written like the part of a rank that owns everything.
  const Shards shards = is_in_parts ? replica.shards(communicator)
                                    : Shards(replica.parameters.size(), k_one_bucket, 0, 1);
  const std::optional<RankPart> part =
      is_in_parts ? std::optional(RankPart{rank, communicator.world_size(), writers_})
                  : std::nullopt;
  std::vector<std::string> prefixes;
  prefixes.reserve(arenas.size());
  for (const SavedArena& arena : arenas) {
    prefixes.push_back(arena.prefix);
  }
  const auto begin = [=, own = shards.own(), head = head_of(progress),
                      &table = replica.model->tensors()] {
    return std::make_unique<CheckpointWriter>(folder, head, table, prefixes, own, part);
  };
  std::unique_ptr<CheckpointWriter> file; // Null: a copy is written while training continues.
  if (is_shared && !is_in_parts) {
    file = rank == 0 ? begin() : nullptr;
    for (const SavedArena& arena : arenas) {
      gather_buckets(communicator, replica.device, replica.shards(communicator), arena.chunks,
                     [&](const ArenaRange& /*bucket*/, std::span<const float> values) {
                       if (file) {
                         file->add(values);
                       }
                     });
    }
  } else if (!makes_copies_ && (is_in_parts || rank == 0)) {
    file = begin();
    write_arenas(replica.device, arenas, shards, *file);
  }
  if (!is_in_parts && rank != 0) {
    return;
  }
  is_joining_ = is_in_parts && rank == 0;
  if (file) {
    copied_ = {};
    saving_ = std::async(std::launch::async, [this, keep, file = std::move(file)] {
      file->commit(keep, WaitLimit(is_over_));
    });
    return;
  }
  Device& device = replica.device;
  const auto copy = [=, &device, this] { copy_arenas(device, arenas, shards, copies_); };
  if (!device.is_host()) {
    copy();
  }
  std::promise<void> copied; // Also where it is destroyed.
  copied_ = copied.get_future();
  saving_ =
      std::async(std::launch::async, [=, &device, this, copied = std::move(copied)]() mutable {
        if (device.is_host()) { // In this thread, which no stream of a GPU's is for.
          copy();
        }
        copied.set_value();
        const std::unique_ptr<CheckpointWriter> writer = begin();
        for (const Buffer& values : copies_) {
          writer->add(values.span());
        }
        writer->commit(keep, WaitLimit(is_over_));
      });
}

void CheckpointSaver::wait(Communicator& communicator) {
  finish(communicator);
  copies_.clear();
}

void CheckpointSaver::finish(Communicator& communicator) {
  constexpr auto k_between_looks = std::chrono::milliseconds(20);
  while (is_joining_ && saving_.valid() &&
         saving_.wait_for(k_between_looks) != std::future_status::ready) {
    communicator.check();
  }
  if (saving_.valid()) {
    saving_.get();
  }
}

CheckpointReader::CheckpointReader(const std::string& path, const Replica& replica,
                                   const Progress& expected)
    : file_(path), table_(replica.model->tensors()), progress_(read_progress(file_, expected)) {
  check_same_run(path, progress_, expected);
  const std::vector<SavedArena> arenas = arenas_of(replica);
  for (const SavedArena& arena : arenas) {
    prefixes_.push_back(arena.prefix);
  }
  for (const CheckpointFile::Entry& entry : file_.entries()) {
    check_is_known(path, entry.tensor.name, table_, prefixes_);
  }
  for (const SavedArena& arena : arenas) {
    for (const Tensor& tensor : table_.tensors()) {
      const CheckpointFile::Entry* const stored = file_.find(arena.prefix + tensor.name);
      try {
        check_shape(tensor, arena.prefix + tensor.name, stored ? &stored->tensor.shape : nullptr);
      } catch (const DataError& error) {
        throw DataError(fmt::format("{}: {}", path, error.what()));
      }
    }
  }
}

void CheckpointReader::read(std::size_t arena, const ArenaRange& part, std::span<float> to) {
  for (std::size_t at = part.first; at < part.last;) {
    const Tensor& tensor = table_.holder(at);
    const std::size_t first = at - tensor.offset;
    const auto out = to.subspan(at - part.first, std::min(part.last - at, tensor.size - first));
    const CheckpointFile::Entry* const stored = file_.find(prefixes_[arena] + tensor.name);
    if (tensor.layout == stored->tensor.layout) {
      const std::size_t held = held_floats(tensor);
      const auto values = out.first(std::min(out.size(), held - std::min(held, first)));
      file_.read(*stored, first, values);
      std::fill(out.begin() + static_cast<std::ptrdiff_t>(values.size()), out.end(), 0.0F);
    } else {
      if (turned_.stored != stored) {
        turned_.stored = stored;
        turned_.held.assign(tensor.size, 0.0F);
        tensor.write(file_.values(*stored), turned_.held);
      }
      std::copy_n(turned_.held.data() + first, out.size(), out.data());
    }
    at += out.size();
  }
}

Progress load_checkpoint(const std::string& path, Replica& replica, const Progress& expected) {
  CheckpointReader reader(path, replica, expected);
  const std::vector<SavedArena> arenas = arenas_of(replica);
  const Buffer room(std::min(k_passing, replica.parameters.size()));
  for (std::size_t i = 0; i < arenas.size(); ++i) {
    in_parts(replica.parameters.size(), [&](std::size_t at, std::size_t count) {
      reader.read(i, {at, at + count}, room.span().first(count));
      arenas[i].chunks.values.write(replica.device, at, room.span().first(count));
    });
  }
  const Progress& progress = reader.progress();
  replica.optimizer.set_state(progress.step, progress.skipped, progress.loss_scale);
  return progress;
}

} // namespace trainer
