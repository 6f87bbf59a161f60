// Token shards: any bytes are read or refused with a DataError, and what is read is of the
// vocabulary.
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "tests/unit/trainer/temp_folder.h"
#include "trainer/data/token_shards.h"
#include "trainer/errors.h"

namespace {

void write(const std::string& path, const char* bytes, std::size_t size) {
  std::ofstream(path, std::ios::binary).write(bytes, static_cast<std::streamsize>(size));
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const TempFolder own;
  const std::string folder = own.path();
  // A true header to begin with, of which the input changes what it will.
  trainer::ShardHeader wanted{.token_bytes = 2, .rows = 3, .length = 4, .vocabulary = 300};
  std::vector<std::uint8_t> bytes = trainer::shard_header_bytes(wanted);
  bytes.resize(bytes.size() + wanted.payload());
  for (std::size_t i = 0; i + 1 < size; i += 2) {
    bytes[data[i] % bytes.size()] = data[i + 1];
  }
  bytes.resize(size % 2 == 0 ? bytes.size() : data[size - 1]);
  try {
    const trainer::ShardHeader header = trainer::parse_shard_header("input", bytes, bytes.size());
    write(folder + "/train-00000.tokens", reinterpret_cast<const char*>(bytes.data()),
          bytes.size());
    const std::string manifest = fmt::format(
        R"({{"format": "dtrain tokens", "length": {}, "vocabulary": {}, "packed": 1, "pad": 0,
            "unknown": 0, "first": 0, "last": 0, "mask": 0, "held-out": [],
            "train": [{{"file": "train-00000.tokens", "rows": {}, "digest": "{:016x}"}}]}})",
        header.length, header.vocabulary, header.rows, header.digest);
    write(folder + "/manifest.json", manifest.data(), manifest.size());
    const trainer::TokenSet set = trainer::open_token_set(folder);
    std::vector<trainer::TokenId> row(set.length);
    for (std::size_t i = 0; i < set.train.count(); ++i) {
      set.train.read(i, row);
      for (const trainer::TokenId id : row) {
        if (id < 0 || static_cast<std::size_t>(id) >= set.vocabulary) {
          std::abort();
        }
      }
    }
  } catch (const trainer::DataError&) {
    return 0;
  }
  return 0;
}
