// A data set: images with labels, kept as the bytes of their files, or text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "trainer/data/source.h"
#include "trainer/text/vocabulary.h"

namespace trainer {

/// One half of a data set.
struct Split {
  Split() = default;
  Split(std::shared_ptr<SampleSource> from) : source(std::move(from)), count(source->count()) {}

  std::shared_ptr<SampleSource> source; ///< Null if it has no samples.
  std::size_t count = 0;
};

/// Which worker reads what, as in tf.data's AutoShardPolicy.
enum class AutoShard {
  automatic, ///< file if there are at least as many files as workers, else data
  file,      ///< Each worker reads other files: file i goes to worker i mod workers.
  data,      ///< Each worker reads all and takes its part of every global batch.
  off,       ///< Each worker reads all, shuffles by itself, and takes all samples.
};

struct Reader {
  AutoShard shard = AutoShard::data;
  int worker = 0;
  int workers = 1;
  std::size_t classes = 10;
  /// The training samples are read once, in any order, so that they may come from a FIFO.
  bool one_pass = false;
};

struct Dataset {
  std::string folder;
  std::size_t classes = 10; ///< Of images.
  SpecialTokens special;    ///< Of text.
  Split train;
  Split test;
  AutoShard shard = AutoShard::data; ///< Never automatic.
  int stream = 0;                    ///< With file and off, each worker has its own stream.
  int streams = 1;
  std::size_t files = 1; ///< Of training images, of all workers together.
};

/// Reads MNIST's four files from `folder`: {train,t10k}-{images-idx3,labels-idx1}-ubyte, each plain
/// or with .gz, or as files NAME-00000-of-00004 to NAME-00003-of-00004. A file may be a FIFO if
/// only one worker reads it: it is streamed if it is not compressed, holds all training samples of
/// the worker and is read once; else it is read whole. Throws DataError naming the file that is
/// missing or damaged, does not match another or has labels beyond the classes; UsageError if there
/// are fewer files than workers or a FIFO would be shared.
Dataset load_dataset(const std::string& folder, const Reader& reader = {});

/// What is scored in its samples: "images" or "masked tokens".
const char* scored_things(const Dataset& dataset);

/// Random images of MNIST's shape, for benchmarks.
Dataset synthetic_dataset(std::size_t count, std::uint64_t seed, std::size_t classes = 10);

/// Digest by which workers check that they have the same data; it does not detect forgery. Covers
/// all labels, and of images the blocks that data/spread_digest.h names; of text the manifest.
std::uint64_t digest(const Dataset& dataset);

/// The names of MNIST's four files.
const std::vector<std::string>& dataset_file_names();

} // namespace trainer
