// A folder of code on its way to jobs, by way of a store of contents by their digest: of a folder
// that was brought before, what changed is all that is read again.
//
// $XDG_CACHE_HOME/dtrain/code/
//   objects/ab/cdef…   a file's bytes, named by their SHA-256; read-only, and nobody's but ours
//   manifests/…        what a folder held when it was last brought (code_manifest.h), and its path:
//                      of one that is no more, all goes with the next that is brought
//   lock               held while the store is used
//
// A job gets copies: clones that share blocks where the file system can, else plain ones, never
// links. What it writes reaches neither the store nor the user's files. Everything here can be
// deleted at any time. A half-written object has another name until it is whole.
#pragma once

#include "backends/support/progress.h"

#include <string>

namespace dtrain {

/// Copies `source` into the empty folder `target`. Throws UsageError naming what cannot be read,
/// Error for what cannot be written.
CopyProgress bring_folder(const std::string& source, const std::string& target,
                          const CopySink& tell);

} // namespace dtrain
