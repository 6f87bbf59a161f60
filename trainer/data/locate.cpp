#include "trainer/data/locate.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "submit/errors.h"
#include "submit/options/environment.h"
#include "trainer/data/download.h"
#include "trainer/data/text_source.h"
#include "trainer/data/token_shards.h"
#include "trainer/errors.h"
#include "trainer/files.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;

constexpr mode_t k_lock_mode = 0644;

bool has_all_files(const fs::path& folder, const KnownDataset& dataset) {
  return std::all_of(dataset.files.begin(), dataset.files.end(), [&](const auto& file) {
    std::error_code error;
    const fs::path path = folder / file.name;
    return fs::exists(path, error) || fs::exists(fs::path(path).replace_extension(), error);
  });
}

/// Holds the lock until it goes out of scope or the process ends.
class FolderLock {
 public:
  explicit FolderLock(const fs::path& folder)
      : path_((folder / ".lock").string()),
        file_(open(path_.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, k_lock_mode)) {
    if (file_ < 0 || flock(file_, LOCK_EX) != 0) {
      const int error = errno;
      release();
      throw Error(fmt::format("{}: cannot lock: {}", path_, std::strerror(error)));
    }
  }
  ~FolderLock() { release(); }
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  void release() const {
    if (file_ >= 0) {
      close(file_);
    }
  }
  std::string path_;
  int file_;
};

void download_missing(const KnownDataset& dataset, const DataPlaces& places,
                      const fs::path& folder) {
  make_folder(folder.string());
  const FolderLock lock(folder);
  for (const KnownDataset::File& file : dataset.files) {
    std::error_code error;
    if (fs::exists(folder / file.name, error)) {
      continue;
    }
    const std::string base =
        places.url.empty() ? dataset.url : fmt::format("{}/{}", places.url, dataset.name);
    download({fmt::format("{}/{}", base, file.name), file.sha256, (folder / file.name).string(),
              places.progress_bar});
  }
}

std::string how_to_get(const KnownDataset& dataset) {
  return dataset.package.empty()
             ? "give a folder with its four files, --data=DIR"
             : fmt::format("install Debian's package {}, or give a folder with its four files, "
                           "--data=DIR",
                           dataset.package);
}

} // namespace

DataPlaces data_places_from_env() {
  const auto text = [](const char* value) { return std::string(value == nullptr ? "" : value); };
  DataPlaces places;
  std::string cache = text(dtrain::environment::k_cache_home.value());
  if (!cache.starts_with('/')) {
    const std::string home = text(std::getenv("HOME"));
    cache = home.starts_with('/') ? home + "/.cache" : "";
  }
  places.cache =
      cache.empty() ? "" : cache + "/dtrain/datasets"; // Never a folder that other users can write.
  places.url = text(dtrain::environment::k_data_url.value());
  while (places.url.ends_with('/')) {
    places.url.pop_back();
  }
  return places;
}

const std::vector<KnownDataset>& known_datasets() {
  static const std::vector<KnownDataset> known = {
      {"fashion-mnist",
       "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion",
       "dataset-fashion-mnist",
       {{"train-images-idx3-ubyte.gz",
         "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84"},
        {"train-labels-idx1-ubyte.gz",
         "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845"},
        {"t10k-images-idx3-ubyte.gz",
         "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073"},
        {"t10k-labels-idx1-ubyte.gz",
         "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"}}},
      {"mnist",
       "https://storage.googleapis.com/cvdf-datasets/mnist",
       "",
       {{"train-images-idx3-ubyte.gz",
         "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"},
        {"train-labels-idx1-ubyte.gz",
         "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"},
        {"t10k-images-idx3-ubyte.gz",
         "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"},
        {"t10k-labels-idx1-ubyte.gz",
         "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"}}}};
  return known;
}

std::string locate_dataset(const std::string& data, const DataPlaces& places,
                           const std::vector<KnownDataset>& known) {
  const auto dataset = std::find_if(known.begin(), known.end(),
                                    [&](const KnownDataset& d) { return d.name == data; });
  if (dataset == known.end()) {
    std::error_code error;
    if (fs::is_fifo(data, error)) {
      throw UsageError(fmt::format("--data={}: a FIFO; put it into a folder under the name of the "
                                   "one of MNIST's four IDX files that comes through it",
                                   dtrain::printable(data)));
    }
    if (fs::is_regular_file(data, error)) {
      throw UsageError(fmt::format("--data={0}: a file, not a folder; to train on text, run "
                                   "dtrain-trainer tokenize {0} --output=DIR and give --data=DIR",
                                   dtrain::printable(data)));
    }
    if (!fs::is_directory(data, error)) {
      throw UsageError(fmt::format("--data={}: no such folder; give one with MNIST's four IDX "
                                   "files or from dtrain-trainer tokenize, or mnist or "
                                   "fashion-mnist",
                                   dtrain::printable(data)));
    }
    return data;
  }
  const fs::path package = fs::path(places.packages) / dataset->name;
  if (has_all_files(package, *dataset)) {
    return package.string();
  }
  if (places.cache.empty()) {
    throw Error(fmt::format("--data={}: not installed, and neither HOME nor XDG_CACHE_HOME says "
                            "where a download may be kept; {}",
                            data, how_to_get(*dataset)));
  }
  const fs::path cache = fs::path(places.cache) / dataset->name;
  if (has_all_files(cache, *dataset)) {
    return cache.string();
  }
  try {
    download_missing(*dataset, places, cache);
  } catch (const Error& error) {
    throw Error(fmt::format("--data={}: not installed, not in {}, and the download failed ({}); {}",
                            data, cache.string(), error.what(), how_to_get(*dataset)));
  }
  return cache.string();
}

Dataset find_dataset(const DataOptions& options, int worker, int workers) {
  DataPlaces places = data_places_from_env();
  places.progress_bar = options.progress_bar;
  const std::string folder = locate_dataset(options.data, places);
  if (is_token_set(folder)) {
    if (options.shard == AutoShard::file || options.shard == AutoShard::off) {
      throw UsageError(
          fmt::format("--auto-shard: {} is text, of which each worker takes its part of "
                      "every batch; use data",
                      folder));
    }
    return load_text(folder, options.is_causal, options.masking);
  }
  return load_dataset(folder, {options.shard, worker, workers, options.classes, options.one_pass});
}

} // namespace trainer
