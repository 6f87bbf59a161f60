// What a folder of code holds, so that what changed since the last time is known without reading
// it: the same whether it goes to this machine, to a host or to a cluster.
//
//   CodeManifest now = scan_code(folder);       // names and times alone, by .dtrainignore
//   reuse_digests(before, now);                 // what is as it was keeps its digest
//   for (CodeFile* file : without_digest(now))  // what is left has to be read
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dtrain {

struct CodeFile {
  std::string path;       ///< Below the folder.
  std::string digest;     ///< SHA-256 in hexadecimal; empty: not known.
  std::uint32_t mode = 0; ///< Permission bits.
  std::int64_t size = 0;
  std::int64_t modified = 0; ///< Nanoseconds since the epoch; 0: too young to be relied on.
  std::int64_t changed = 0;  ///< The inode's own time, which no program can set.
  std::uint64_t inode = 0;

  bool operator==(const CodeFile&) const = default;
};

struct CodeLink {
  std::string path;
  std::string target;

  bool operator==(const CodeLink&) const = default;
};

/// Each list is sorted by path, so that folders come before their contents.
struct CodeManifest {
  std::vector<std::string> folders;
  std::vector<CodeLink> links;
  std::vector<CodeFile> files;

  bool operator==(const CodeManifest&) const = default;
};

/// Everything below `folder` except what .dtrainignore files leave out, those files themselves, and
/// special files. Throws UsageError naming what cannot be read.
CodeManifest scan_code(const std::string& folder);

/// Gives the files of `now` that have the size and times of `before` the digests of `before`.
void reuse_digests(const CodeManifest& before, CodeManifest& now);

std::string write_manifest(const CodeManifest& manifest);

/// Empty where the text is no manifest, a damaged one included.
std::optional<CodeManifest> read_manifest(std::string_view text);

} // namespace dtrain
