#include "trainer/checkpoint/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <vector>

#include "trainer/checkpoint/safetensors.h"
#include "trainer/data/xxh64.h"
#include "trainer/errors.h"
#include "trainer/files.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view k_prefix = "step-";
constexpr std::string_view k_suffix = ".safetensors";
constexpr const char* k_format = "dtrain-1";
constexpr std::size_t k_kept = 2;

template <typename Number>
std::optional<Number> parse(std::string_view text) {
  Number number{};
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && stop == text.data() + text.size() ? std::optional(number)
                                                                   : std::nullopt;
}

struct Found {
  std::int64_t step;
  std::string path;
};

/// Newest first.
std::vector<Found> checkpoints(const std::string& folder) {
  std::vector<Found> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string file = entry.path().filename().string();
    if (!file.starts_with(k_prefix) || !file.ends_with(k_suffix) ||
        file.size() <= k_prefix.size() + k_suffix.size()) {
      continue;
    }
    const auto digits = std::string_view(file).substr(
        k_prefix.size(), file.size() - k_prefix.size() - k_suffix.size());
    if (const auto step = parse<std::int64_t>(digits)) {
      found.push_back({*step, entry.path().string()});
    }
  }
  std::sort(found.begin(), found.end(),
            [](const Found& a, const Found& b) { return a.step > b.step; });
  return found;
}

/// What a replica's checkpoint holds: parameters by name, and each moment as "adam.m.NAME".
std::vector<std::pair<std::string, std::span<float>>> arenas_of(const Replica& replica) {
  std::vector<std::pair<std::string, std::span<float>>> arenas = {{"", replica.parameters.span()}};
  for (const Optimizer::Moment& moment : replica.optimizer.moments()) {
    arenas.emplace_back(moment.name + ".", moment.values.span());
  }
  return arenas;
}

std::string manifest_path(const std::string& path) {
  return fs::path(path).replace_extension(".json").string();
}

/// Length and digest of a file as it lies there.
nlohmann::json manifest_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<std::uint8_t> bytes((std::istreambuf_iterator<char>(file)),
                                        std::istreambuf_iterator<char>());
  return {{"format", k_format},
          {"file", fs::path(path).filename().string()},
          {"bytes", bytes.size()},
          {"xxh64", fmt::format("{:016x}", xxh64(bytes, 0))}};
}

template <typename Number>
Number metadata(const SafeTensors& content, const char* key, const std::string& path) {
  const auto it = content.metadata.find(key);
  const auto number = it == content.metadata.end() ? std::nullopt : parse<Number>(it->second);
  if (!number) {
    throw DataError(fmt::format("{}: metadata {} is missing or no number", path, key));
  }
  return *number;
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

std::vector<std::string> list_checkpoints(const std::string& folder) {
  std::vector<std::string> paths;
  for (Found& found : checkpoints(folder)) {
    paths.push_back(std::move(found.path));
  }
  return paths;
}

std::string what_is_wrong(const std::string& path) {
  std::ifstream file(manifest_path(path));
  const auto manifest = nlohmann::json::parse(file, nullptr, false);
  if (!manifest.is_object()) {
    return "was not finished: its manifest is missing or damaged";
  }
  return manifest == manifest_of(path) ? "" : "damaged: it does not fit its manifest";
}

std::optional<std::string> newest_checkpoint(const std::string& folder) {
  for (const Found& found : checkpoints(folder)) {
    std::error_code error;
    if (fs::exists(manifest_path(found.path), error)) {
      return found.path;
    }
  }
  return std::nullopt;
}

std::optional<std::string>
newest_whole_checkpoint(const std::string& folder,
                        const std::function<void(const std::string&)>& say) {
  for (const Found& found : checkpoints(folder)) {
    const std::string wrong = what_is_wrong(found.path);
    if (wrong.empty()) {
      return found.path;
    }
    say(fmt::format("{}: {}; trying the one before", found.path, wrong));
  }
  return std::nullopt;
}

void remove_unfinished(const std::string& folder) {
  std::error_code ignored; // What stays does no harm.
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const std::string file = entry.path().filename().string();
    if (file.starts_with(k_prefix) && file.find(".tmp.") != std::string::npos) {
      fs::remove(entry.path(), ignored);
    }
  }
}

void save_checkpoint(const std::string& folder, const Replica& replica, const Progress& progress) {
  make_folder(folder);
  SafeTensors content;
  content.metadata = {{"format", k_format},
                      {"step", std::to_string(progress.step)},
                      {"position", std::to_string(progress.position)},
                      {"seed", std::to_string(progress.seed)},
                      {"samples", std::to_string(progress.samples)},
                      {"global_batch", std::to_string(progress.global_batch)}};
  const TensorTable& tensors = replica.model->tensors();
  for (const auto& [prefix, arena] : arenas_of(replica)) {
    if (const std::string wrong = tensors.first_not_finite(arena); !wrong.empty()) {
      throw Error(fmt::format("step {}: {}{} holds what is no finite number, and no checkpoint is "
                              "written; try a smaller --learning-rate",
                              progress.step, prefix, wrong));
    }
    for (NamedTensor& tensor : tensors.export_arena(arena, prefix)) {
      content.tensors.push_back(std::move(tensor));
    }
  }
  const std::string path =
      (fs::path(folder) / fmt::format("{}{:09}{}", k_prefix, progress.step, k_suffix)).string();
  write_safetensors(path, content);
  const std::string text = manifest_of(path).dump() + "\n";
  AtomicFile manifest(manifest_path(path));
  manifest.write(std::as_bytes(std::span(text)));
  manifest.commit();
  const auto found = checkpoints(folder);
  for (std::size_t i = k_kept; i < found.size(); ++i) {
    std::error_code ignored; // an old one that stays does no harm
    fs::remove(found[i].path, ignored);
    fs::remove(manifest_path(found[i].path), ignored);
  }
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
      replica.model->tensors().import_arena(content.tensors, arena, prefix);
    }
  } catch (const DataError& error) {
    throw DataError(fmt::format("{}: {}", path, error.what()));
  }
  replica.optimizer.set_step(saved.step);
  return saved;
}

} // namespace trainer
