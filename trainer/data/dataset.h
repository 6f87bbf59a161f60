// Images with labels, in memory as the bytes they come in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace trainer {

/// One half of a data set.
struct Split {
  std::vector<std::uint8_t> images; ///< (count, features)
  std::vector<std::uint8_t> labels; ///< (count), each < classes
  std::size_t count = 0;
  std::size_t features = 0;
};

struct Dataset {
  std::string folder;
  std::size_t classes = 10;
  Split train;
  Split test;
};

/// Reads MNIST's four files from `folder`: {train,t10k}-{images-idx3,labels-idx1}-ubyte, each plain
/// or with .gz. Throws DataError naming the file that is missing, damaged or does not fit another.
Dataset load_dataset(const std::string& folder);

/// Random images of MNIST's shape, for benchmarks.
Dataset synthetic_dataset(std::size_t count, std::uint64_t seed);

/// Of all samples and labels, to tell data sets apart; not against forgery.
std::uint64_t digest(const Dataset& dataset);

/// The four names.
const std::vector<std::string>& dataset_file_names();

} // namespace trainer
