#include "trainer/checkpoint/checkpoint.h"

#include <fmt/format.h>

#include <charconv>
#include <list>
#include <vector>

#include "trainer/checkpoint/safetensors.h"
#include "trainer/device/host_view.h"
#include "trainer/errors.h"

namespace trainer {
namespace {

constexpr const char* k_format = "dtrain-1";
constexpr std::size_t k_kept = 2;

/// What a replica's checkpoint holds: parameters by name, and each moment as "adam.m.NAME".
std::vector<std::pair<std::string, std::span<float>>> arenas_of(const Replica& replica) {
  std::vector<std::pair<std::string, std::span<float>>> arenas = {{"", replica.parameters.span()}};
  for (const Optimizer::Moment& moment : replica.optimizer.moments()) {
    arenas.emplace_back(moment.name + ".", moment.values.span());
  }
  return arenas;
}

template <typename Number>
Number metadata(const SafeTensors& content, const char* key, const std::string& path) {
  const auto it = content.metadata.find(key);
  const std::string text = it == content.metadata.end() ? "" : it->second;
  Number number{};
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || stop != text.data() + text.size()) {
    throw DataError(fmt::format("{}: metadata {} is missing or no number", path, key));
  }
  return number;
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

void save_checkpoint(const std::string& folder, const Replica& replica, const Progress& progress) {
  const TensorTable& table = replica.model->tensors();
  std::vector<TensorSource> sources;
  std::list<HostView> views;
  for (const auto& [prefix, on_device] : arenas_of(replica)) {
    const std::span<float> arena = views.emplace_back(replica.device, on_device).values();
    if (const std::string wrong = table.first_not_finite(arena); !wrong.empty()) {
      throw Error(fmt::format("step {}: {}{} holds what is no finite number, and no checkpoint is "
                              "written; try a smaller --learning-rate",
                              progress.step, prefix, wrong));
    }
    for (std::size_t i = 0; i < table.tensors().size(); ++i) {
      const Tensor& tensor = table[i];
      sources.push_back(
          {prefix + tensor.name, tensor.shape, [&table, i, arena = arena](std::span<float> to) {
             table.read(arena, {i, 0, to.size(), 0}, to);
           }});
    }
  }
  save_numbered(folder, progress.step,
                {{"format", k_format},
                 {"step", std::to_string(progress.step)},
                 {"position", std::to_string(progress.position)},
                 {"seed", std::to_string(progress.seed)},
                 {"samples", std::to_string(progress.samples)},
                 {"global_batch", std::to_string(progress.global_batch)}},
                sources, k_kept);
}

Progress load_checkpoint(const std::string& path, Replica& replica, const Progress& expected) {
  const SafeTensors content = read_safetensors(path);
  const auto format = content.metadata.find("format");
  if (format == content.metadata.end() || format->second != k_format) {
    throw DataError(fmt::format("{}: no checkpoint of dtrain-trainer (metadata format is not {})",
                                path, k_format));
  }
  const Progress saved{metadata<std::int64_t>(content, "step", path),
                       metadata<std::uint64_t>(content, "position", path),
                       metadata<std::uint64_t>(content, "seed", path),
                       metadata<std::uint64_t>(content, "samples", path),
                       metadata<std::uint64_t>(content, "global_batch", path)};
  check_same_run(path, saved, expected);
  try {
    for (const auto& [prefix, arena] : arenas_of(replica)) {
      const HostView view(replica.device, arena);
      replica.model->tensors().import_arena(content.tensors, view.values(), prefix);
      view.write_back();
    }
  } catch (const DataError& error) {
    throw DataError(fmt::format("{}: {}", path, error.what()));
  }
  replica.optimizer.set_step(saved.step);
  return saved;
}

} // namespace trainer
