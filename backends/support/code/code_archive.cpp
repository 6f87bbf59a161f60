#include "backends/support/code/code_archive.h"

#include "backends/support/code/code_manifest.h"
#include "backends/support/os/digest.h"
#include "backends/support/os/subprocess.h"
#include "backends/support/progress.h"
#include "submit/errors.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <numeric>
#include <string_view>

namespace dtrain {
namespace {

constexpr std::size_t k_least_part_bytes = 256U << 10U;
constexpr std::uint64_t k_cut_mask = ~0ULL << 46U; // One cut in 256 KiB on average.
constexpr auto k_interval = std::chrono::milliseconds(100);

/// Random numbers, the same ever since (splitmix64).
constexpr std::array<std::uint64_t, 256> gear_table() {
  std::array<std::uint64_t, 256> table{};
  std::uint64_t state = 0;
  for (std::uint64_t& entry : table) {
    state += 0x9e3779b97f4a7c15U;
    std::uint64_t mixed = (state ^ (state >> 30U)) * 0xbf58476d1ce4e5b9U;
    mixed = (mixed ^ (mixed >> 27U)) * 0x94d049bb133111ebU;
    entry = mixed ^ (mixed >> 31U);
  }
  return table;
}

constexpr std::array<std::uint64_t, 256> k_gear = gear_table();

/// The tar program, whose output is an archive of what `names` lists, each ended by a NUL.
Command tar_of(const std::string& folder, const std::string& names) {
  return {.argv = {"tar", "--create", "--file=-", "--format=gnu", "--owner=0", "--group=0",
                   "--numeric-owner", "--hard-dereference", "--no-recursion",
                   "--directory=" + folder, "--null", "--no-unquote", "--verbatim-files-from",
                   "--files-from=-"},
          .input = names};
}

/// Why it failed, in its own words; empty where it did not.
std::string tar_failure(Subprocess& tar) {
  constexpr int k_some_changed = 1; // Files were written meanwhile: their copy is good enough.
  const Ending ending = tar.wait();
  if (ending.signal == 0 && ending.exit_code >= 0 && ending.exit_code <= k_some_changed) {
    return "";
  }
  const std::string line = tar.errors().substr(0, tar.errors().find('\n'));
  return line.empty() ? "tar failed" : line;
}

/// `bytes` as a gzip member that says nothing of when and where it was made.
std::string gzip(std::string_view bytes) {
  constexpr int k_gzip_window = 15 + 16;
  constexpr int k_memory_level = 8;
  z_stream stream{};
  if (deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, k_gzip_window, k_memory_level,
                   Z_DEFAULT_STRATEGY) != Z_OK) {
    throw Error("cannot pack the code: no memory");
  }
  std::string packed(deflateBound(&stream, bytes.size()), '\0');
  // NOLINTNEXTLINE(*-const-cast,*-reinterpret-cast): zlib's types; it writes to neither's input
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data()); // NOLINT(*-reinterpret-cast)
  stream.avail_out = static_cast<uInt>(packed.size());
  const int result = deflate(&stream, Z_FINISH);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  if (result != Z_STREAM_END) {
    throw Error("cannot pack the code: zlib failed");
  }
  return packed;
}

/// Cuts a stream into parts.
class Cutter {
 public:
  explicit Cutter(CodeArchive& archive) : archive_(archive) {}

  void add(std::string_view bytes) {
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      hash_ = (hash_ << 1U) + k_gear.at(static_cast<unsigned char>(bytes[i]));
      const std::size_t size = part_.size() + i + 1 - begun_;
      if ((size >= k_least_part_bytes && (hash_ & k_cut_mask) == 0) || size == k_most_raw) {
        part_ += bytes.substr(begun_, i + 1 - begun_);
        begun_ = i + 1;
        end_part();
      }
    }
    part_ += bytes.substr(begun_);
    begun_ = 0;
  }

  void end_part() {
    if (part_.empty()) {
      return;
    }
    CodePart part;
    part.gzip = gzip(part_);
    part.digest = digest_of(part.gzip);
    archive_.packed_bytes += static_cast<std::int64_t>(part.gzip.size());
    archive_.parts.push_back(std::move(part));
    part_.clear();
  }

 private:
  /// Incompressible data becomes slightly longer.
  static constexpr std::size_t k_most_raw = k_most_part_bytes - 1000;

  CodeArchive& archive_;
  std::string part_;
  std::size_t begun_ = 0; ///< Offset in the available bytes at which the part continues.
  std::uint64_t hash_ = 0;
};

std::string names_of(const CodeManifest& manifest) {
  std::string names;
  for (const std::string& folder : manifest.folders) {
    names += folder + '\0';
  }
  for (const CodeLink& link : manifest.links) {
    names += link.path + '\0';
  }
  for (const CodeFile& file : manifest.files) {
    names += file.path + '\0';
  }
  return names;
}

} // namespace

std::string CodeArchive::text() const {
  return fmt::format("{} file{}, {}; packed {}", files, files == 1 ? "" : "s", bytes_text(bytes),
                     bytes_text(packed_bytes));
}

CodeArchive pack_folder(const std::string& source, std::int64_t most_bytes, const CopySink& tell) {
  const CodeManifest manifest = scan_code(source);
  CodeArchive archive;
  archive.files = static_cast<std::int64_t>(manifest.files.size());
  archive.bytes =
      std::accumulate(manifest.files.begin(), manifest.files.end(), std::int64_t{0},
                      [](std::int64_t sum, const CodeFile& file) { return sum + file.size; });
  Subprocess tar(tar_of(source, names_of(manifest)));
  Cutter cutter(archive);
  CopyProgress progress;
  progress.files_total = archive.files;
  progress.bytes_total = archive.bytes;
  auto next_told = std::chrono::steady_clock::now();
  const auto require_room = [&] {
    if (archive.packed_bytes > most_bytes) {
      throw UsageError(fmt::format(
          "--sync-source={}: {} in {} file{} exceed {} when packed: list what the ranks do not "
          "need in .dtrainignore, or use --sync-mode=git, --data, or the image",
          printable(source), bytes_text(archive.bytes), archive.files,
          archive.files == 1 ? "" : "s", bytes_text(most_bytes)));
    }
  };
  for (std::string_view bytes; !(bytes = tar.read_some()).empty();) {
    cutter.add(bytes);
    require_room();
    progress.bytes =
        std::min(progress.bytes + static_cast<std::int64_t>(bytes.size()), archive.bytes);
    if (const auto now = std::chrono::steady_clock::now(); tell && now >= next_told) {
      tell(progress);
      next_told = now + k_interval;
    }
  }
  cutter.end_part();
  require_room();
  if (const std::string why = tar_failure(tar); !why.empty()) {
    throw UsageError(
        fmt::format("--sync-source={}: cannot be packed: {}", printable(source), printable(why)));
  }
  return archive;
}

} // namespace dtrain
