#include "trainer/data/dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "trainer/data/idx.h"
#include "trainer/data/image_source.h"
#include "trainer/data/labels.h"
#include "trainer/errors.h"
#include "trainer/random.h"

namespace trainer {
namespace {

constexpr std::size_t k_synthetic_side = 28;
constexpr std::size_t k_max_pixels = 1 << 20;

namespace fs = std::filesystem;

constexpr std::size_t k_most_files = 100'000;

/// Path of the plain or compressed file with this name; empty if neither exists.
std::string one_file(const std::string& folder, const std::string& name) {
  for (const char* suffix : {"", ".gz"}) {
    std::string path = (fs::path(folder) / (name + suffix)).string();
    std::error_code error;
    if (fs::exists(path, error)) {
      return path;
    }
  }
  return "";
}

std::string shard_name(const std::string& name, std::size_t i, std::size_t count) {
  return fmt::format("{}-{:05}-of-{:05}", name, i, count);
}

/// COUNT of the files NAME-…-of-COUNT; 0 if there is no such file.
std::size_t shard_count(const std::string& folder, const std::string& name) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string file = entry.path().filename().string();
    unsigned long shard = 0;
    unsigned long count = 0;
    if (file.starts_with(name + "-") &&
        std::sscanf(file.c_str() + name.size(), "-%5lu-of-%5lu", &shard, &count) == 2 &&
        count > 0 && count <= k_most_files) {
      return count;
    }
  }
  return 0;
}

/// The single file, or all its parts in order.
std::vector<std::string> find_files(const std::string& folder, const std::string& name) {
  if (const std::string path = one_file(folder, name); !path.empty()) {
    return {path};
  }
  std::vector<std::string> paths;
  const std::size_t count = shard_count(folder, name);
  for (std::size_t i = 0; i < count; ++i) {
    paths.push_back(one_file(folder, shard_name(name, i, count)));
    if (paths.back().empty()) {
      throw DataError(
          fmt::format("{}: no {}, of {} files", folder, shard_name(name, i, count), count));
    }
  }
  if (paths.empty()) {
    throw DataError(fmt::format("{}: no {} or {}.gz there; --data takes a folder with MNIST's four "
                                "IDX files",
                                folder, name, name));
  }
  return paths;
}

void refuse_shared_fifo(const std::string& path, int readers) {
  std::error_code error;
  if (readers > 1 && fs::is_fifo(path, error)) {
    throw UsageError(fmt::format(
        "{}: a FIFO that {} workers would read, and each get a part of; "
        "give each its own, {} and so on, or files",
        path, readers,
        shard_name(fs::path(path).filename().string(), 0, static_cast<std::size_t>(readers))));
  }
}

void check_images(const std::string& path, std::size_t count, std::size_t height,
                  std::size_t width) {
  if (count == 0 || height * width == 0 || height * width > k_max_pixels) {
    throw DataError(fmt::format("{}: {} images of {} × {} pixels cannot be trained on", path, count,
                                height, width));
  }
}

bool is_stream(const std::string& images, const std::string& labels) {
  std::error_code error;
  return (fs::is_fifo(images, error) || fs::is_fifo(labels, error)) && !images.ends_with(".gz") &&
         !labels.ends_with(".gz");
}

/// "28 × 28"
std::string size_text(std::size_t height, std::size_t width) {
  return fmt::format("{} × {}", height, width);
}
std::string size_text(const ImageSet& set) { return size_text(set.height, set.width); }
std::string size_text(const Split& split) {
  return size_text(split.source->kind().height, split.source->kind().width);
}

Split open_stream(const std::string& images, const std::string& labels, std::size_t classes) {
  auto stream = std::make_unique<SampleStream>(images, labels, classes);
  check_images(images, stream->count(), stream->height(), stream->width());
  return image_source(std::move(stream));
}

ImageSet load_files(const std::string& images_path, const std::string& labels_path,
                    std::size_t classes) {
  IdxArray pixels = read_idx(images_path, 3);
  const std::vector<std::uint32_t> sizes = pixels.header.dimensions;
  check_images(images_path, sizes[0], sizes[1], sizes[2]);
  ImageSet set{std::move(pixels.values), read_labels(labels_path, classes), sizes[1], sizes[2],
               label_type(classes)};
  if (set.count() != sizes[0]) {
    throw DataError(fmt::format("{}: {} labels for the {} images of {}", labels_path, set.count(),
                                sizes[0], images_path));
  }
  return set;
}

/// The files of a split that this reader is assigned.
Split load_split(const std::vector<std::string>& images, const std::vector<std::string>& labels,
                 const Reader& reader) {
  if (images.size() != labels.size()) {
    throw DataError(fmt::format("{}: {} files with images, {} with labels", images.front(),
                                images.size(), labels.size()));
  }
  const bool has_own = reader.shard == AutoShard::file;
  const auto step = static_cast<std::size_t>(has_own ? reader.workers : 1);
  std::vector<ImageSet> parts;
  const auto own = static_cast<std::size_t>(has_own ? reader.worker : 0);
  if (reader.one_pass && own + step >= images.size() && is_stream(images[own], labels[own]) &&
      (has_own || reader.workers == 1)) {
    return open_stream(images[own], labels[own], reader.classes);
  }
  for (std::size_t i = own; i < images.size(); i += step) {
    for (const std::string& path : {images[i], labels[i]}) {
      refuse_shared_fifo(path, has_own ? 1 : reader.workers);
    }
    parts.push_back(load_files(images[i], labels[i], reader.classes));
    if (size_text(parts.back()) != size_text(parts.front())) {
      throw DataError(fmt::format("{}: images of {} pixels, those of {} have {}", images[i],
                                  size_text(parts.back()), images.front(),
                                  size_text(parts.front())));
    }
  }
  if (parts.size() == 1) {
    return image_source(std::move(parts.front()));
  }
  std::vector<std::uint8_t> all_images;
  std::vector<std::uint8_t> all_labels;
  for (const ImageSet& part : parts) {
    all_images.insert(all_images.end(), part.images.begin(), part.images.end());
    all_labels.insert(all_labels.end(), part.labels.begin(), part.labels.end());
  }
  return image_source({std::move(all_images), std::move(all_labels), parts.front().height,
                       parts.front().width, parts.front().label_type});
}

} // namespace

const std::vector<std::string>& dataset_file_names() {
  static const std::vector<std::string> names = {
      "train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte",
      "t10k-labels-idx1-ubyte"};
  return names;
}

Dataset load_dataset(const std::string& folder, const Reader& reader) {
  const auto& names = dataset_file_names();
  const std::vector<std::string> images = find_files(folder, names[0]);
  const auto workers = static_cast<std::size_t>(reader.workers);
  if (reader.shard == AutoShard::file && images.size() < workers) {
    throw UsageError(fmt::format("--auto-shard=file: {} has {} file{} with images to train on, for "
                                 "{} workers; use data, or cut it into more",
                                 folder, images.size(), images.size() == 1 ? "" : "s", workers));
  }
  Reader own = reader;
  if (own.shard == AutoShard::automatic) {
    own.shard = workers > 1 && images.size() >= workers ? AutoShard::file : AutoShard::data;
  }
  Dataset dataset;
  dataset.folder = folder;
  dataset.classes = reader.classes;
  dataset.train = load_split(images, find_files(folder, names[1]), own);
  dataset.test = load_split(find_files(folder, names[2]), find_files(folder, names[3]),
                            {AutoShard::data, 0, reader.workers, reader.classes});
  dataset.shard = own.shard;
  dataset.files = images.size();
  if (own.shard != AutoShard::data) {
    dataset.stream = reader.worker;
    dataset.streams = reader.workers;
  }
  if (size_text(dataset.train) != size_text(dataset.test)) {
    throw DataError(fmt::format("{}: training images have {} pixels, held-out ones {}", folder,
                                size_text(dataset.train), size_text(dataset.test)));
  }
  return dataset;
}

const char* scored_things(const Dataset& dataset) { return dataset.train.source->kind().scored; }

std::uint64_t digest(const Dataset& dataset) {
  std::uint64_t sum = dataset.classes + static_cast<std::uint64_t>(dataset.shard);
  const Split& train = dataset.train;
  const bool is_read_by_all = dataset.shard != AutoShard::file && !train.source->is_stream();
  if (is_read_by_all) {
    sum = sum * 31 + train.source->digest();
  }
  if (dataset.test.source) {
    sum = sum * 31 + dataset.test.source->digest();
  }
  return sum + dataset.files;
}

Dataset synthetic_dataset(std::size_t count, std::uint64_t seed, std::size_t classes) {
  Dataset dataset;
  dataset.classes = classes;
  dataset.folder = "synthetic";
  std::vector<std::uint8_t> images(count * k_synthetic_side * k_synthetic_side);
  const DType type = label_type(classes);
  std::vector<std::uint8_t> labels(count * size_of(type));
  for (std::size_t i = 0; i < images.size(); i += 16) {
    const auto words = random_at(seed, RandomStream::synthetic_data, 0, i);
    for (std::size_t j = 0; j < 16; ++j) {
      images[i + j] = static_cast<std::uint8_t>(words[j / 4] >> (j % 4 * 8));
    }
  }
  for (std::size_t i = 0; i < count; ++i) {
    const auto words = random_at(seed, RandomStream::synthetic_data, 1, i);
    const auto label = static_cast<std::int32_t>(words[0] % classes);
    std::memcpy(labels.data() + i * size_of(type), &label, size_of(type));
  }
  dataset.train = image_source(
      {std::move(images), std::move(labels), k_synthetic_side, k_synthetic_side, type});
  return dataset;
}

} // namespace trainer
