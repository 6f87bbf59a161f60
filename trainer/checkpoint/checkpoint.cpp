#include "trainer/checkpoint/checkpoint.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "trainer/checkpoint/safetensors.h"
#include "trainer/device/host_view.h"
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
  std::span<float> memory; ///< The device's: whole, or this rank's own chunks.
  bool is_packed;          ///< Of the rank's own chunks alone, one behind the other.
};

std::vector<SavedArena> arenas_of(const Replica& replica) {
  std::vector<SavedArena> arenas = {{"", replica.parameters, false}};
  for (const Optimizer::Moment& moment : replica.optimizer.moments()) {
    arenas.push_back({moment.name + ".", moment.values.span(), replica.sharding.stage > 0});
  }
  return arenas;
}

std::map<std::string, std::string> metadata_of(const Progress& progress) {
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
  return metadata;
}

/// Throws Error where one of what `name` holds is no finite number.
void check_finite(std::int64_t step, const std::string& name, std::span<const float> values) {
  if (!std::all_of(values.begin(), values.end(), [](float one) { return std::isfinite(one); })) {
    throw Error(fmt::format("step {}: {} holds what is no finite number, and no checkpoint is "
                            "written; try a smaller --learning-rate",
                            step, name));
  }
}

/// Takes arenas one behind the other, in parts cut anywhere, and writes their tensors. Of a tensor
/// that lies there in panels it holds all.
class CheckpointWriter {
 public:
  CheckpointWriter(const std::string& folder, const TensorTable& table,
                   std::vector<SavedArena> arenas, const Progress& progress)
      : table_(table), arenas_(std::move(arenas)), step_(progress.step),
        file_(folder, progress.step, metadata_of(progress), shapes()) {}

  /// Throws Error where a value is no finite number.
  void add(std::span<const float> values) {
    while (!values.empty()) {
      const Tensor& tensor = table_[tensor_];
      const auto part = values.first(std::min(values.size(), tensor.size - at_));
      add(tensor, part);
      values = values.subspan(part.size());
      at_ += part.size();
      if (at_ == tensor.size) {
        at_ = 0;
        tensor_ = (tensor_ + 1) % table_.tensors().size();
        arena_ += tensor_ == 0 ? 1 : 0;
      }
    }
  }

  void commit(std::size_t keep) { file_.commit(keep); }

 private:
  std::vector<TensorShape> shapes() const {
    std::vector<TensorShape> shapes;
    for (const SavedArena& arena : arenas_) {
      for (const Tensor& tensor : table_.tensors()) {
        shapes.push_back({arena.prefix + tensor.name, tensor.shape});
      }
    }
    return shapes;
  }

  void add(const Tensor& tensor, std::span<const float> part) {
    check_finite(step_, arenas_[arena_].prefix + tensor.name, part);
    const std::size_t count = tensor.count();
    if (tensor.layout == Layout::row_major) { // Filled up at its end.
      file_.write(part.first(std::min(part.size(), count - std::min(count, at_))));
      return;
    }
    if (part.size() < tensor.size) {
      held_.insert(held_.end(), part.begin(), part.end());
      if (held_.size() < tensor.size) {
        return;
      }
      part = held_;
    }
    row_major_.resize(count);
    tensor.read(part, row_major_);
    file_.write(row_major_);
    held_.clear();
  }

  const TensorTable& table_;
  std::vector<SavedArena> arenas_;
  std::int64_t step_;
  NumberedWriter file_;
  std::size_t arena_ = 0; ///< Where what comes next belongs:
  std::size_t tensor_ = 0;
  std::size_t at_ = 0;      ///< In what the tensor takes.
  std::vector<float> held_; ///< Of it so far.
  std::vector<float> row_major_;
};

/// What a rank holds of a tensor, of each arena.
struct OwnPart {
  const Tensor& tensor;
  ArenaRange range;   ///< In what the tensor takes.
  std::size_t behind; ///< Of its values of an arena so many are before it.
};

std::vector<OwnPart> own_parts(const TensorTable& table, const std::vector<ArenaRange>& own) {
  std::vector<OwnPart> parts;
  std::size_t behind = 0;
  for (const ArenaRange& range : own) {
    for (std::size_t at = range.first; at < range.last;) {
      const Tensor& tensor = table.holder(at);
      const std::size_t last = std::min(range.last, tensor.range().last);
      const ArenaRange part{at - tensor.offset,
                            std::min(last - tensor.offset, held_floats(tensor))};
      if (part.first < part.last) {
        parts.push_back({tensor, part, behind + at - range.first});
      }
      at = last;
    }
    behind += range.size();
  }
  return parts;
}

/// Of a rank that owns these ranges of the arenas; to be committed.
std::shared_ptr<NumberedWriter> write_part(const std::string& folder, const TensorTable& table,
                                           const std::vector<ArenaRange>& own,
                                           const std::vector<SavedArena>& arenas,
                                           const Progress& progress, const RankPart& part) {
  const std::vector<OwnPart> parts = own_parts(table, own);
  std::vector<std::string> prefixes;
  std::vector<TensorShape> shapes;
  for (const SavedArena& arena : arenas) {
    prefixes.push_back(arena.prefix);
    for (const auto& [tensor, range, behind] : parts) {
      shapes.push_back({range_name(arena.prefix + tensor.name, range), {range.size()}});
    }
  }
  std::map<std::string, std::string> metadata = metadata_of(progress);
  metadata["tensors"] = describe_tensors(table, prefixes);
  auto file = std::make_shared<NumberedWriter>(folder, progress.step, metadata, shapes, part);
  for (const SavedArena& arena : arenas) {
    for (const auto& [tensor, range, behind] : parts) {
      const auto values = arena.memory.subspan(
          arena.is_packed ? behind : tensor.offset + range.first, range.size());
      check_finite(progress.step, arena.prefix + tensor.name, values);
      file->write(values);
    }
  }
  return file;
}

/// For the other ranks' parts of a checkpoint.
class Patience {
 public:
  explicit Patience(const std::atomic<bool>& is_over) : is_over_(is_over) {}

  /// Throws Error once `path` has been waited for long enough.
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
  const TensorTable& table = replica.model->tensors();
  const int rank = communicator.rank();
  if (replica.sharding.stage > 0 && has_met()) {
    const RankPart part{rank, communicator.world_size(), writers_};
    const std::vector<ArenaRange> own = replica.shards(communicator).own();
    std::shared_ptr<NumberedWriter> file;
    if (makes_copies_) {
      copy(replica, own);
    } else {
      file = write_part(folder, table, own, arenas, progress, part);
    }
    is_joining_ = rank == 0;
    saving_ = std::async(std::launch::async, [=, this, &table]() mutable {
      if (!file) {
        std::vector<SavedArena> copies;
        for (std::size_t i = 0; i < copies_.size(); ++i) {
          copies.push_back({arenas[i].prefix, copies_[i].span(), true});
        }
        file = write_part(folder, table, own, copies, progress, part);
      }
      file->commit(keep, Patience(is_over_));
    });
  } else if (replica.sharding.stage > 0) {
    const auto file =
        rank == 0 ? std::make_shared<CheckpointWriter>(folder, table, arenas, progress) : nullptr;
    for (const SavedArena& arena : arenas) {
      gather_buckets(communicator, replica.device, replica.shards(communicator),
                     {arena.memory, !arena.is_packed},
                     [&](const ArenaRange& /*bucket*/, std::span<const float> values) {
                       if (file) {
                         file->add(values);
                       }
                     });
    }
    if (file) {
      saving_ = std::async(std::launch::async, [=] { file->commit(keep); });
    }
  } else if (rank == 0) {
    copy(replica, {{0, replica.parameters.size()}});
    saving_ = std::async(std::launch::async, [=, this, &table] {
      CheckpointWriter file(folder, table, arenas, progress);
      for (const Buffer& copy : copies_) {
        file.add(copy.span());
      }
      file.commit(keep);
    });
  }
}

/// Of each arena what this rank owns, one behind the other.
void CheckpointSaver::copy(const Replica& replica, const std::vector<ArenaRange>& own) {
  const std::vector<SavedArena> arenas = arenas_of(replica);
  Device& device = replica.device;
  for (std::size_t i = 0; i < arenas.size(); ++i) {
    const auto& [prefix, memory, is_packed] = arenas[i];
    const std::vector<ArenaRange> ranges =
        is_packed ? std::vector{ArenaRange{0, memory.size()}} : own;
    if (copies_.size() == i) {
      std::size_t floats = 0;
      for (const ArenaRange& range : ranges) {
        floats += range.size();
      }
      copies_.push_back(device.allocate_pinned(floats, DType::f32));
    }
    float* to = copies_[i].data();
    for (const ArenaRange& range : ranges) {
      device.stream().copy(memory.data() + range.first, to, range.size() * sizeof(float));
      to += range.size();
    }
  }
  device.stream().record()->wait();
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
  for (const SavedArena& arena : arenas_of(replica)) {
    prefixes_.push_back(arena.prefix);
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
  for (std::size_t i = 0; i < arenas.size(); ++i) {
    const HostView view(replica.device, arenas[i].memory);
    reader.read(i, {0, view.values().size()}, view.values());
    view.write_back();
  }
  const Progress& progress = reader.progress();
  replica.optimizer.set_state(progress.step, progress.skipped, progress.loss_scale);
  return progress;
}

} // namespace trainer
