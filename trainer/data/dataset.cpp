#include "trainer/data/dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "trainer/data/idx.h"
#include "trainer/data/xxh64.h"
#include "trainer/errors.h"
#include "trainer/random.h"

namespace trainer {
namespace {

constexpr std::size_t k_classes = 10;
constexpr std::size_t k_synthetic_features = 784;
constexpr std::size_t k_max_pixels = 1 << 20;

std::string find_file(const std::string& folder, const std::string& name) {
  for (const char* suffix : {"", ".gz"}) {
    std::string path = (std::filesystem::path(folder) / (name + suffix)).string();
    std::error_code error;
    if (std::filesystem::exists(path, error)) {
      return path;
    }
  }
  throw DataError(fmt::format("{}: no {} or {}.gz there; --data takes a folder with MNIST's four "
                              "IDX files",
                              folder, name, name));
}

Split load_split(const std::string& folder, const std::string& images, const std::string& labels) {
  const std::string images_path = find_file(folder, images);
  const std::string labels_path = find_file(folder, labels);
  IdxArray pixels = read_idx(images_path, 3);
  IdxArray classes = read_idx(labels_path, 1);
  Split split;
  split.count = pixels.dimensions[0];
  split.features = std::size_t{pixels.dimensions[1]} * pixels.dimensions[2];
  if (split.count == 0 || split.features == 0 || split.features > k_max_pixels) {
    throw DataError(fmt::format("{}: {} images of {} × {} pixels cannot be trained on", images_path,
                                split.count, pixels.dimensions[1], pixels.dimensions[2]));
  }
  if (classes.dimensions[0] != split.count) {
    throw DataError(fmt::format("{}: {} labels for the {} images of {}", labels_path,
                                classes.dimensions[0], split.count, images_path));
  }
  const auto wrong = std::find_if(classes.values.begin(), classes.values.end(),
                                  [](std::uint8_t label) { return label >= k_classes; });
  if (wrong != classes.values.end()) {
    throw DataError(fmt::format("{}: label {} at position {}; labels are 0 to {}", labels_path,
                                *wrong, wrong - classes.values.begin(), k_classes - 1));
  }
  split.images = std::move(pixels.values);
  split.labels = std::move(classes.values);
  return split;
}

} // namespace

const std::vector<std::string>& dataset_file_names() {
  static const std::vector<std::string> names = {
      "train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte",
      "t10k-labels-idx1-ubyte"};
  return names;
}

Dataset load_dataset(const std::string& folder) {
  const auto& names = dataset_file_names();
  Dataset dataset{folder, k_classes, load_split(folder, names[0], names[1]),
                  load_split(folder, names[2], names[3])};
  if (dataset.train.features != dataset.test.features) {
    throw DataError(fmt::format("{}: training images have {} pixels, held-out ones {}", folder,
                                dataset.train.features, dataset.test.features));
  }
  return dataset;
}

std::uint64_t digest(const Dataset& dataset) {
  std::uint64_t sum = dataset.classes;
  for (const Split* split : {&dataset.train, &dataset.test}) {
    sum = xxh64(split->images, sum + split->features);
    sum = xxh64(split->labels, sum);
  }
  return sum;
}

Dataset synthetic_dataset(std::size_t count, std::uint64_t seed) {
  Dataset dataset{"synthetic", k_classes, {}, {}};
  Split& split = dataset.train;
  split.count = count;
  split.features = k_synthetic_features;
  split.images.resize(count * split.features);
  split.labels.resize(count);
  for (std::size_t i = 0; i < split.images.size(); i += 16) {
    const auto words = random_at(seed, RandomStream::synthetic_data, 0, i);
    for (std::size_t j = 0; j < 16; ++j) {
      split.images[i + j] = static_cast<std::uint8_t>(words[j / 4] >> (j % 4 * 8));
    }
  }
  for (std::size_t i = 0; i < count; ++i) {
    const auto words = random_at(seed, RandomStream::synthetic_data, 1, i);
    split.labels[i] = static_cast<std::uint8_t>(words[0] % k_classes);
  }
  return dataset;
}

} // namespace trainer
