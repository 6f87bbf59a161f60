// Which parameter server holds what: variables are cut into shards by rows, with TensorFlow's
// partitioners, and the shards are placed so that the servers hold equal numbers of bytes.
//
// A variable's shards are contiguous runs of rows, the first ones a row longer where the rows do
// not divide (13 rows in 5 shards: 3, 3, 3, 2, 2), as TensorFlow cuts them. Its shards then go
// round-robin, which puts the one large variable of a model on few servers; here the largest shard
// goes first to the server with the fewest bytes (longest processing time first: within 4/3 of the
// best balance).
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace trainer {

/// A run of rows in the parameter arena.
struct Variable {
  std::string name;
  std::size_t offset = 0; ///< Floats from the arena's start.
  std::size_t rows = 0;
  std::size_t row_length = 0; ///< Floats.
  bool sparse = false;        ///< Only the rows that a batch touches travel (embeddings).
};

struct Shard {
  std::string variable;
  std::size_t first_row = 0; ///< Within the variable.
  std::size_t rows = 0;
  std::size_t row_length = 0;
  std::size_t offset = 0; ///< Floats from the arena's start.
  bool sparse = false;

  std::size_t count() const { return rows * row_length; } ///< Floats.
  bool operator==(const Shard&) const = default;
};

struct Partitioner {
  enum class Kind {
    none,     ///< One shard a variable.
    fixed,    ///< `shards` shards, at most one a row.
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

std::vector<Shard> partition(const Variable& variable, const Partitioner& partitioner);

/// What each server holds, dense shards first, by arena offset. Every rank finds the same.
std::vector<std::vector<Shard>> place(const std::vector<Variable>& variables,
                                      const Partitioner& partitioner, std::size_t servers);

} // namespace trainer
