// From --data to a folder with the four files.
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

/// A data set that can be had by name.
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
  std::string packages = "/usr/share/datasets"; ///< Debian's packages: a folder a data set.
  std::string cache;                            ///< Downloads: a folder a data set.
  std::string url; ///< Overrides where files come from, as URL/NAME/FILE; empty: their own sites.
  bool progress_bar = false;
};

/// The cache of this user, and the URL of DTRAIN_DATA_URL.
DataPlaces data_places_from_env();

const std::vector<KnownDataset>& known_datasets();

/// Throws UsageError where `data` is neither a name nor a folder, and Error, saying how to get the
/// data, where a download fails.
std::string locate_dataset(const std::string& data, const DataPlaces& places,
                           const std::vector<KnownDataset>& known = known_datasets());

/// Which data, and who reads what of them.
struct DataOptions {
  std::string data = "fashion-mnist"; ///< A name or a folder.
  AutoShard shard = AutoShard::automatic;
  std::size_t classes = 10; ///< Of images.
  bool one_pass = false;
  bool progress_bar = false;   ///< Of a download.
  bool is_causal = false;      ///< Of text: each next token is to be told.
  MaskingOptions masking = {}; ///< Else.
};

/// Locates and loads, as one worker of several. A folder may also hold text (data/token_shards.h).
Dataset find_dataset(const DataOptions& options, int worker = 0, int workers = 1);

} // namespace trainer
