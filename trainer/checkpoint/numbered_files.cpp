#include "trainer/checkpoint/numbered_files.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <vector>

#include <fmt/format.h>

#include "trainer/checkpoint/hugging_face.h"
#include "trainer/data/xxh64.h"
#include "trainer/errors.h"
#include "trainer/files.h"
#include "trainer/json_file.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* k_manifest_format = "dtrain-1";
constexpr std::string_view k_number_prefix = "step-";
constexpr std::string_view k_file_suffix = ".safetensors";
constexpr std::string_view k_manifest_suffix = ".json";
constexpr std::string_view k_part_infix = ".rank-";

std::string name_of(std::int64_t number, const std::optional<RankPart>& part) {
  return part ? fmt::format("{}{:09}{}{:05}-of-{:05}", k_number_prefix, number, k_part_infix,
                            part->rank, part->ranks)
              : fmt::format("{}{:09}", k_number_prefix, number);
}

std::string path_in(const std::string& folder, const std::string& name) {
  return (fs::path(folder) / name).string();
}

/// In a folder that is there now.
std::string new_path(const std::string& folder, const std::string& name) {
  make_folder(folder);
  return path_in(folder, name);
}

std::string manifest_path(const std::string& path) {
  return fs::path(path).replace_extension(k_manifest_suffix).string();
}

/// "step-000001500" of its path.
std::string stem_of(const std::string& path) { return fs::path(path).stem().string(); }

json manifest_of(const std::string& path, std::uint64_t bytes, std::uint64_t digest) {
  return {{"format", k_manifest_format},
          {"file", fs::path(path).filename().string()},
          {"bytes", bytes},
          {"xxh64", fmt::format("{:016x}", digest)}};
}

/// Of a file on the disk. Throws Error.
json manifest_of(const std::string& path) {
  constexpr std::uint64_t k_piece = std::uint64_t{1} << 20;
  const InputFile file(path);
  std::vector<std::uint8_t> room(k_piece);
  Xxh64 digest(0);
  for (std::uint64_t at = 0; at < file.size(); at += k_piece) {
    const auto piece = std::span(room).first(std::min(k_piece, file.size() - at));
    file.read(at, std::as_writable_bytes(piece));
    digest.add(piece);
  }
  return manifest_of(path, file.size(), digest.digest());
}

json read_json(const std::string& path) {
  std::ifstream file(path);
  return parse_shallow_json(file);
}

void write_json(const std::string& path, const json& content) {
  const std::string text = content.dump() + "\n";
  AtomicFile file(path);
  file.write(std::as_bytes(std::span(text)));
  file.commit();
}

bool is_in_parts(const json& manifest) {
  return manifest.is_object() && manifest.contains("parts");
}

/// The files of one number, each with the manifest entry that it should match; none: unfinished.
std::vector<std::pair<std::string, json>> manifests_of(const std::string& path) {
  const json manifest = read_json(manifest_path(path));
  if (!is_in_parts(manifest)) {
    return manifest.is_object() ? std::vector{std::pair(path, manifest)}
                                : std::vector<std::pair<std::string, json>>{};
  }
  std::vector<std::pair<std::string, json>> parts;
  for (const json& part : manifest["parts"]) {
    const json name = part.is_object() ? part.value("file", json()) : json();
    if (!name.is_string() || !is_file_name(name.get<std::string>())) {
      return {};
    }
    parts.emplace_back((fs::path(path).parent_path() / name.get<std::string>()).string(), part);
  }
  return parts;
}

/// Whether it was finished and still has its length; does not read its bytes.
bool is_complete(const std::string& path) {
  const auto files = manifests_of(path);
  return !files.empty() && std::all_of(files.begin(), files.end(), [](const auto& file) {
    std::error_code error;
    const auto bytes = fs::file_size(file.first, error);
    return !error && file.second.value("bytes", json()) == bytes;
  });
}

/// Removes all files there whose names begin with `stem` and a dot, except `kept`.
void remove_files(const fs::path& folder, const std::string& stem,
                  const std::vector<std::string>& kept = {}) {
  std::error_code ignored; // What stays does no harm.
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    if (entry.path().filename().string().starts_with(stem + ".") &&
        std::find(kept.begin(), kept.end(), entry.path().string()) == kept.end()) {
      fs::remove(entry.path(), ignored);
    }
  }
}

} // namespace

std::vector<NumberedFile> numbered_files(const std::string& folder) {
  struct Found {
    bool is_whole = false;
    bool has_parts = false;
    bool has_manifest = false; ///< Written last and removed first: alone, it tells of a loss.
    bool says_parts = false;   ///< Its manifest does.
  };
  std::map<std::string, Found> stems;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string file = entry.path().filename().string();
    if (!file.starts_with(k_number_prefix)) {
      continue;
    }
    const std::size_t dot = std::min(file.find('.'), file.size());
    const std::string_view rest = std::string_view(file).substr(dot);
    Found& found = stems[file.substr(0, dot)];
    found.is_whole |= rest == k_file_suffix;
    found.has_manifest |= rest == k_manifest_suffix;
    found.says_parts |= rest == k_manifest_suffix && is_in_parts(read_json(entry.path().string()));
    found.has_parts |=
        found.says_parts || (rest.starts_with(k_part_infix) && rest.ends_with(k_file_suffix));
  }
  std::vector<NumberedFile> files;
  for (const auto& [stem, found] : stems) {
    const char* const last = stem.data() + stem.size();
    std::int64_t number = 0;
    const auto [stop, wrong] = std::from_chars(stem.data() + k_number_prefix.size(), last, number);
    if (wrong == std::errc() && stop == last &&
        (found.is_whole || found.has_parts || found.has_manifest)) {
      const bool is_manifest = found.says_parts || (found.has_parts && !found.is_whole);
      files.push_back({number, path_in(folder, stem + std::string(is_manifest ? k_manifest_suffix
                                                                              : k_file_suffix))});
    }
  }
  std::sort(files.begin(), files.end(),
            [](const NumberedFile& a, const NumberedFile& b) { return a.number > b.number; });
  return files;
}

NumberedFile numbered_file(const std::string& folder, std::int64_t number) {
  for (const NumberedFile& found : numbered_files(folder)) {
    if (found.number == number) {
      return found;
    }
  }
  throw DataError(fmt::format("{}: has none of step {}", folder, number));
}

bool has_manifest(const std::string& path) {
  std::error_code error;
  return fs::exists(manifest_path(path), error);
}

std::vector<std::string> files_of(const std::string& path) {
  if (!path.ends_with(k_manifest_suffix)) {
    return {path};
  }
  std::vector<std::string> files;
  for (const auto& [file, manifest] : manifests_of(path)) {
    files.push_back(file);
  }
  if (files.empty() || files.front() == path) {
    throw DataError(fmt::format("{}: is no manifest of a checkpoint's parts", path));
  }
  return files;
}

std::string what_is_wrong(const std::string& path) {
  const auto files = manifests_of(path);
  if (files.empty()) {
    return "was not finished: its manifest is missing or damaged";
  }
  for (const auto& [file, manifest] : files) {
    try {
      if (manifest != manifest_of(file)) {
        return file == path ? "damaged: it does not fit its manifest"
                            : fmt::format("damaged: {} does not fit it", stem_of(file));
      }
    } catch (const Error& error) {
      return error.what();
    }
  }
  return "";
}

void remove_unfinished(const std::string& folder) {
  std::error_code ignored; // What stays does no harm.
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const std::string file = entry.path().filename().string();
    if ((file.starts_with(k_number_prefix) ||
         file.starts_with(k_model_config + std::string("."))) &&
        file.find(".tmp.") != std::string::npos) {
      fs::remove(entry.path(), ignored);
    }
  }
}

void remove_numbered(const NumberedFile& file) {
  std::error_code ignored;
  fs::remove(manifest_path(file.path), ignored); // First: without, the rest is nothing.
  remove_files(fs::path(file.path).parent_path(), stem_of(file.path));
}

NumberedWriter::NumberedWriter(const std::string& folder, std::int64_t number,
                               const std::map<std::string, std::string>& metadata,
                               std::span<const TensorShape> tensors,
                               const std::optional<RankPart>& part)
    : folder_(folder), number_(number), part_(part),
      path_(new_path(folder, name_of(number, part) + std::string(k_file_suffix))),
      file_(path_, metadata, tensors) {}

void NumberedWriter::commit(std::size_t keep, const std::function<void(const std::string&)>& wait) {
  file_.commit();
  json manifest = manifest_of(path_, file_.bytes(), file_.digest());
  if (part_) {
    manifest["writers"] = part_->writers;
  }
  write_json(manifest_path(path_), manifest);
  if (!part_) {
    remove_files(folder_, name_of(number_, {}), {path_, manifest_path(path_)});
    prune(keep);
  } else if (part_->rank == 0) {
    join_parts(wait);
    prune(keep);
  }
}

void NumberedWriter::join_parts(const std::function<void(const std::string&)>& wait) const {
  const std::string stem = name_of(number_, {});
  std::vector<std::string> kept = {path_in(folder_, stem + std::string(k_manifest_suffix))};
  json parts = json::array();
  for (RankPart part = *part_; part.rank < part.ranks; ++part.rank) {
    const std::string path = path_in(folder_, name_of(number_, part) + std::string(k_file_suffix));
    json manifest = read_json(manifest_path(path));
    while (!manifest.is_object() || manifest.value("writers", json()) != part.writers) {
      wait(path);
      manifest = read_json(manifest_path(path));
    }
    manifest.erase("writers");
    parts.push_back(manifest);
    kept.push_back(path);
  }
  write_json(kept.front(), {{"format", k_manifest_format}, {"parts", parts}});
  remove_files(folder_, stem, kept);
}

void NumberedWriter::prune(std::size_t keep) const {
  std::size_t kept = 0;
  for (const NumberedFile& found : numbered_files(folder_)) {
    if (found.number > number_) { // Of a run that got further: damaged, or not this run's.
      continue;
    }
    if (kept == keep) {
      remove_numbered(found);
    } else {
      kept += is_complete(found.path) ? 1 : 0;
    }
  }
}

} // namespace trainer
