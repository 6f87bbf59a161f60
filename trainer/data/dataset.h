// What there is to learn from: images with labels, as the bytes they come in, or text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "trainer/data/source.h"

namespace trainer {

/// One half of a data set.
struct Split {
  Split() = default;
  Split(std::shared_ptr<SampleSource> from) : source(std::move(from)), count(source->count()) {}

  std::shared_ptr<SampleSource> source; ///< Null: there are none.
  std::size_t count = 0;
};

/// Who reads what, as tf.data's AutoShardPolicy has it.
enum class AutoShard {
  automatic, ///< file where there are as many files as workers, else data
  file,      ///< Each worker reads files of its own: number i goes to worker i mod workers.
  data,      ///< Each worker reads all and takes its part of every global batch.
  off,       ///< Each worker reads all, shuffles for itself, and takes all of it.
};

struct Reader {
  AutoShard shard = AutoShard::data;
  int worker = 0;
  int workers = 1;
  std::size_t classes = 10;
  /// The training samples are taken once, in any order: they may be a stream.
  bool one_pass = false;
};

struct Dataset {
  std::string folder;
  std::size_t classes = 10; ///< Of images.
  Split train;
  Split test;
  AutoShard shard = AutoShard::data; ///< Never automatic.
  int stream = 0;                    ///< With file and off each worker has a stream of its own.
  int streams = 1;
  std::size_t files = 1; ///< With images to train on, of all workers.
};

/// Reads MNIST's four files from `folder`: {train,t10k}-{images-idx3,labels-idx1}-ubyte, each plain
/// or with .gz, or as files NAME-00000-of-00004 to NAME-00003-of-00004. A file may be a FIFO, if
/// one worker alone reads it: a stream where it is plain and all that the worker reads to train on,
/// and one pass is taken, else read whole. Throws DataError naming the file that is missing,
/// damaged, does not fit another or has labels of other classes, UsageError where files are fewer
/// than workers or a FIFO would be shared.
Dataset load_dataset(const std::string& folder, const Reader& reader = {});

/// What its samples are scored by: "images" or "masked tokens".
const char* scored_things(const Dataset& dataset);

/// Random images of MNIST's shape, for benchmarks.
Dataset synthetic_dataset(std::size_t count, std::uint64_t seed, std::size_t classes = 10);

/// Of what workers have in common, to tell data sets apart, not against forgery: all labels, and of
/// images what data/spread_digest.h says; a token set's manifest.
std::uint64_t digest(const Dataset& dataset);

/// The four names.
const std::vector<std::string>& dataset_file_names();

} // namespace trainer
