// A folder of code packed for the way to a cluster: a tar archive, gzip, cut into parts.
//
//   tar's output  |---------|------|------------|-----|    cut where its own bytes say
//   parts          gzip      gzip   gzip         gzip      cat PART... | tar -xz
//
// A part ends where a rolling hash of the last bytes has so many zeros (the gear hash of FastCDC,
// Xia et al., USENIX ATC 2016). A change moves the cuts near it alone, so that the other parts are
// what they were, and need not be sent again.
#pragma once

#include "backends/support/code/code_store.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace dtrain {

struct CodePart {
  std::string digest; ///< SHA-256 of `gzip`, in hexadecimal.
  std::string gzip;   ///< A member: several in a row are one stream.
};

struct CodeArchive {
  std::vector<CodePart> parts; ///< In the archive's order.
  std::int64_t files = 0;
  std::int64_t bytes = 0;        ///< In these files …
  std::int64_t packed_bytes = 0; ///< … and in all parts.

  std::string text() const; ///< "3 files, 1.2 kB; packed 0.4 kB", for people.
};

constexpr std::size_t k_most_part_bytes = 1'000'000; ///< Of a part, packed or not.
/// Of an archive, which is in memory once; its store may accept less.
constexpr std::int64_t k_most_packed_bytes = 1'000'000'000;

/// Packs the files that scan_code() finds in `source` with the tar program, in parts. Reports how
/// much is packed. Throws UsageError naming what cannot be read, or if the packed size exceeds
/// `most_bytes`; Error if tar cannot be run.
CodeArchive pack_folder(const std::string& source, std::int64_t most_bytes, const CopySink& tell);

} // namespace dtrain
