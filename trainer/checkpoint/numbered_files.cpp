#include "trainer/checkpoint/numbered_files.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "trainer/data/xxh64.h"
#include "trainer/errors.h"
#include "trainer/files.h"

namespace trainer {
namespace {

constexpr std::string_view k_number_prefix = "step-";
constexpr std::string_view k_number_suffix = ".safetensors";

std::string manifest_path(const std::string& path) {
  return std::filesystem::path(path).replace_extension(".json").string();
}

/// Length and digest of a file as it lies there. Throws Error.
nlohmann::json manifest_of(const std::string& path) {
  constexpr std::uint64_t k_part = std::uint64_t{1} << 20;
  const InputFile file(path);
  std::vector<std::uint8_t> room(k_part);
  Xxh64 digest(0);
  for (std::uint64_t at = 0; at < file.size(); at += k_part) {
    const auto part = std::span(room).first(std::min(k_part, file.size() - at));
    file.read(at, std::as_writable_bytes(part));
    digest.add(part);
  }
  return {{"format", "dtrain-1"},
          {"file", std::filesystem::path(path).filename().string()},
          {"bytes", file.size()},
          {"xxh64", fmt::format("{:016x}", digest.digest())}};
}

nlohmann::json read_manifest(const std::string& path) {
  std::ifstream file(manifest_path(path));
  return nlohmann::json::parse(file, nullptr, false);
}

/// Whether it was finished and is as long as it was; its bytes are not read.
bool is_complete(const std::string& path) {
  const nlohmann::json manifest = read_manifest(path);
  std::error_code error;
  const auto bytes = std::filesystem::file_size(path, error);
  return manifest.is_object() && !error && manifest.value("bytes", nlohmann::json()) == bytes;
}

/// In a folder that is there now.
std::string path_in(const std::string& folder, std::int64_t number) {
  make_folder(folder);
  return (std::filesystem::path(folder) /
          fmt::format("{}{:09}{}", k_number_prefix, number, k_number_suffix))
      .string();
}

} // namespace

std::vector<NumberedFile> numbered_files(const std::string& folder) {
  std::vector<NumberedFile> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string file = entry.path().filename().string();
    if (!file.starts_with(k_number_prefix) || !file.ends_with(k_number_suffix)) {
      continue;
    }
    const char* first = file.data() + k_number_prefix.size();
    const char* last = file.data() + file.size() - k_number_suffix.size();
    std::int64_t number = 0;
    const auto [stop, wrong] = std::from_chars(first, std::max(first, last), number);
    if (wrong == std::errc() && stop == last) {
      found.push_back({number, entry.path().string()});
    }
  }
  std::sort(found.begin(), found.end(),
            [](const NumberedFile& a, const NumberedFile& b) { return a.number > b.number; });
  return found;
}

bool has_manifest(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(manifest_path(path), error);
}

std::string what_is_wrong(const std::string& path) {
  const nlohmann::json manifest = read_manifest(path);
  if (!manifest.is_object()) {
    return "was not finished: its manifest is missing or damaged";
  }
  try {
    return manifest == manifest_of(path) ? "" : "damaged: it does not fit its manifest";
  } catch (const Error& error) {
    return error.what();
  }
}

void remove_unfinished(const std::string& folder) {
  std::error_code ignored; // What stays does no harm.
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    const std::string file = entry.path().filename().string();
    if (file.starts_with(k_number_prefix) && file.find(".tmp.") != std::string::npos) {
      std::filesystem::remove(entry.path(), ignored);
    }
  }
}

void remove_numbered(const NumberedFile& file) {
  std::error_code ignored; // An old one that stays does no harm.
  std::filesystem::remove(file.path, ignored);
  std::filesystem::remove(manifest_path(file.path), ignored);
}

NumberedWriter::NumberedWriter(const std::string& folder, std::int64_t number,
                               const std::map<std::string, std::string>& metadata,
                               std::span<const TensorShape> tensors)
    : folder_(folder), number_(number), path_(path_in(folder, number)),
      file_(path_, metadata, tensors) {}

void NumberedWriter::commit(std::size_t keep) {
  file_.commit();
  const std::string text = manifest_of(path_).dump() + "\n";
  AtomicFile manifest(manifest_path(path_));
  manifest.write(std::as_bytes(std::span(text)));
  manifest.commit();
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
