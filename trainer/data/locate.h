// Resolves --data to a folder with MNIST's four files, or with text.
//
// A name (mnist, fashion-mnist) is looked for where Debian's package puts it, then in the cache
// ($XDG_CACHE_HOME or ~/.cache, dtrain/datasets/NAME), and else downloaded into the cache: each
// file is checked against its SHA-256 and appears under its name only when whole. Several ranks of
// a host wait for the first one's download (a lock on the folder). Anything else is a folder.
#pragma once

#include <string>
#include <vector>

#include "trainer/data/dataset.h"
#include "trainer/data/masking.h"

namespace trainer {

/// A data set that --data may name.
struct KnownDataset {
  struct File {
    std::string name;   ///< "train-images-idx3-ubyte.gz"
    std::string sha256; ///< Lower-case hex.
  };
  std::string name;
  std::string url;     ///< Of the folder, without the last slash.
  std::string package; ///< Debian's; empty: there is none.
  std::vector<File> files;
};

/// Where to look.
struct DataPlaces {
  std::string packages = "/usr/share/datasets"; ///< Of Debian's packages: a folder per data set.
  std::string cache;                            ///< Of downloads: a folder per data set.
  std::string url; ///< Mirror to download URL/NAME/FILE from; empty: the data set's own site.
  bool progress_bar = false;
};

/// The cache of this user, and the URL of DTRAIN_DATA_URL.
DataPlaces data_places_from_env();

const std::vector<KnownDataset>& known_datasets();

/// Throws UsageError if `data` is neither a name nor a folder; Error saying how to get the data if
/// a download fails.
std::string locate_dataset(const std::string& data, const DataPlaces& places,
                           const std::vector<KnownDataset>& known = known_datasets());

/// Which data to load, and how workers share them.
struct DataOptions {
  std::string data = "fashion-mnist"; ///< A name or a folder.
  AutoShard shard = AutoShard::automatic;
  std::size_t classes = 10; ///< Of images.
  bool one_pass = false;
  bool progress_bar = false;   ///< Of a download.
  bool is_causal = false;      ///< Of text: predict each next token.
  MaskingOptions masking = {}; ///< Of text that is not causal: predict masked tokens.
};

/// Locates and loads, as one worker of several. A folder may also hold text (data/token_shards.h).
Dataset find_dataset(const DataOptions& options, int worker = 0, int workers = 1);

} // namespace trainer
