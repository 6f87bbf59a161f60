// Which parameter server holds what: tensors are cut into ranges by rows of 16 floats, with
// TensorFlow's partitioners, and these are placed so that the servers hold equal numbers of bytes.
//
// A tensor's ranges are contiguous, the first ones a row longer where the rows do not divide (13
// rows in 5 ranges: 3, 3, 3, 2, 2), as TensorFlow cuts variables. Its shards then go round-robin,
// which puts the one large variable of a model on few servers; here the largest range goes first to
// the server with the fewest bytes (longest processing time first: within 4/3 of the best balance).
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "trainer/nn/tensor_table.h"

namespace trainer {

struct Partitioner {
  enum class Kind {
    none,     ///< One range a tensor.
    fixed,    ///< `shards` ranges, at most one a row.
    min_size, ///< As many as leave none below `bytes`, at most `shards`.
    max_size, ///< As few as leave none above `bytes` (a row at least), at most `shards` if not 0.
  };
  Kind kind = Kind::none;
  std::size_t shards = 0;
  std::size_t bytes = 0;
};

/// "none", "fixed[:SHARDS]" (one a server by default), "min-size[:BYTES[:SHARDS]]" (262144, one a
/// server), "max-size:BYTES[:SHARDS]". Throws UsageError naming --partitioner.
Partitioner parse_partitioner(const std::string& text, std::size_t servers);

std::vector<ArenaRange> partition(const ArenaRange& tensor, const Partitioner& partitioner);

/// What each server holds, in the arena's order. Every rank finds the same.
std::vector<std::vector<ArenaRange>> place(const std::vector<ArenaRange>& tensors,
                                           const Partitioner& partitioner, std::size_t servers);

} // namespace trainer
