// A snapshot file: safetensors (u64 length, JSON, tensors), so that any tool reads it. The JSON's
// __metadata__ holds the job, the version and a CRC-32 of all tensor bytes.
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <fstream>

#include <fcntl.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>
#include <zlib.h>

#include "trainer/errors.h"
#include "trainer/strategy/parameter_server/store.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::uint64_t k_longest_header = 100'000'000;
constexpr const char* k_snapshot_prefix = "step-";
constexpr const char* k_snapshot_suffix = ".snapshot";

fs::path file_of(const fs::path& folder, std::int64_t version) {
  return folder / fmt::format("{}{}{}", k_snapshot_prefix, version, k_snapshot_suffix);
}

/// Versions in the folder, the newest first.
std::vector<std::int64_t> versions_in(const fs::path& folder) {
  std::vector<std::int64_t> versions;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder, none)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(k_snapshot_prefix) || !name.ends_with(k_snapshot_suffix)) {
      continue;
    }
    const char* first = name.data() + std::string_view(k_snapshot_prefix).size();
    const char* last = name.data() + name.size() - std::string_view(k_snapshot_suffix).size();
    std::int64_t version = 0;
    const auto [stop, error] = std::from_chars(first, last, version);
    if (error == std::errc() && stop == last) {
      versions.push_back(version);
    }
  }
  std::sort(versions.rbegin(), versions.rend());
  return versions;
}

std::uint32_t crc_of(std::span<const std::span<float>> parts) {
  uLong crc = crc32(0, nullptr, 0);
  for (const auto& part : parts) {
    const auto bytes = std::as_bytes(part);
    crc = crc32_z(crc, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size());
  }
  return static_cast<std::uint32_t>(crc);
}

class File {
 public:
  explicit File(const fs::path& path)
      : path_(path), fd_(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600)) {
    check(fd_ >= 0);
  }
  ~File() {
    if (fd_ >= 0) {
      close(fd_);
    }
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  void write(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t written = ::write(fd_, bytes.data(), bytes.size());
      check(written > 0 || errno == EINTR);
      bytes = bytes.subspan(static_cast<std::size_t>(std::max<ssize_t>(written, 0)));
    }
  }
  void finish() {
    check(fsync(fd_) == 0);
    check(close(std::exchange(fd_, -1)) == 0);
  }

 private:
  void check(bool ok) const {
    if (!ok) {
      throw DataError(fmt::format("{}: cannot be written: {}", path_.string(), error_text(errno)));
    }
  }
  static std::string error_text(int error) { return std::generic_category().message(error); }

  fs::path path_;
  int fd_;
};

} // namespace

std::string ShardStore::describe(const std::string& job) const {
  json shards = json::array();
  for (const Shard& shard : shards_) {
    shards.push_back({shard.variable, shard.first_row, shard.rows, shard.row_length, shard.offset,
                      shard.sparse});
  }
  return json{{"job", job}, {"shards", shards}}.dump();
}

void ShardStore::save(const fs::path& folder, const std::string& job, std::size_t keep) const {
  const std::vector<std::pair<const char*, std::span<float>>> arenas = {
      {"parameter", parameters_.span()},
      {"adam.m", optimizer_.moments()[0].values.span()},
      {"adam.v", optimizer_.moments()[1].values.span()}};
  json header;
  std::vector<std::span<float>> parts;
  std::size_t offset = 0;
  for (const auto& [kind, arena] : arenas) {
    for (std::size_t s = 0; s < shards_.size(); ++s) {
      const Shard& shard = shards_[s];
      const std::size_t bytes = shard.count() * sizeof(float);
      header[fmt::format("{}[{}:{}].{}", shard.variable, shard.first_row,
                         shard.first_row + shard.rows, kind)] = {
          {"dtype", "F32"},
          {"shape", {shard.rows, shard.row_length}},
          {"data_offsets", {offset, offset + bytes}}};
      offset += bytes;
    }
    parts.push_back(arena);
  }
  header["__metadata__"] = {{"format", "dtrain parameter server snapshot 1"},
                            {"version", std::to_string(version())},
                            {"holds", describe(job)},
                            {"crc32", std::to_string(crc_of(parts))}};
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const std::uint64_t length = text.size();

  std::error_code failed;
  fs::create_directories(folder, failed);
  const fs::path path = file_of(folder, version());
  const fs::path unfinished = fs::path(path).concat(".new");
  try {
    File file(unfinished);
    file.write(std::as_bytes(std::span(&length, 1)));
    file.write(std::as_bytes(std::span(text)));
    for (const auto& part : parts) {
      file.write(std::as_bytes(part));
    }
    file.finish();
    fs::rename(unfinished, path);
  } catch (const std::exception& error) {
    fs::remove(unfinished, failed);
    throw DataError(error.what());
  }
  const auto versions = versions_in(folder);
  for (std::size_t i = keep; i < versions.size(); ++i) {
    fs::remove(file_of(folder, versions[i]), failed);
  }
}

void ShardStore::forget_after(const fs::path& folder, std::int64_t version) {
  std::error_code none;
  for (const std::int64_t found : versions_in(folder)) {
    if (found > version) {
      fs::remove(file_of(folder, found), none);
    }
  }
}

bool ShardStore::load(const fs::path& folder, const std::string& job, std::int64_t version) {
  for (const std::int64_t found : versions_in(folder)) {
    if (version >= 0 && found != version) {
      continue;
    }
    const fs::path path = file_of(folder, found);
    std::ifstream file(path, std::ios::binary);
    std::uint64_t length = 0;
    file.read(reinterpret_cast<char*>(&length), sizeof length);
    if (!file || length > k_longest_header) {
      continue; // Damaged: an older one may be whole.
    }
    std::string text(length, '\0');
    file.read(text.data(), static_cast<std::streamsize>(length));
    const json header = json::parse(text, nullptr, false);
    if (!file || !header.is_object() || !header.contains("__metadata__")) {
      continue;
    }
    const json& metadata = header["__metadata__"];
    if (metadata.value("holds", "") != describe(job)) {
      throw DataError(fmt::format("{}: is of another job or another number of servers; use another "
                                  "--snapshot-dir or remove it",
                                  path.string()));
    }
    const Buffer first(parameters_.size());
    const Buffer m(parameters_.size());
    const Buffer v(parameters_.size());
    const std::vector<std::span<float>> parts = {first.span(), m.span(), v.span()};
    for (const auto& part : parts) {
      const auto bytes = std::as_writable_bytes(part);
      file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    }
    if (!file || metadata.value("crc32", "") != std::to_string(crc_of(parts))) {
      continue;
    }
    std::copy_n(first.data(), first.size(), parameters_.data());
    std::copy_n(m.data(), m.size(), optimizer_.moments()[0].values.data());
    std::copy_n(v.data(), v.size(), optimizer_.moments()[1].values.data());
    optimizer_.set_step(found);
    return true;
  }
  return false;
}

} // namespace trainer
