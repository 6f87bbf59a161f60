#include "trainer/data/idx.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>

#include "trainer/errors.h"

namespace trainer {
namespace {

constexpr std::size_t k_word = 4;
constexpr std::size_t k_read_size = std::size_t{8} << 20;
constexpr unsigned k_gzip_buffer = 1U << 17;

std::uint32_t big_endian(const std::uint8_t* bytes) {
  return std::uint32_t{bytes[0]} << 24 | std::uint32_t{bytes[1]} << 16 |
         std::uint32_t{bytes[2]} << 8 | std::uint32_t{bytes[3]};
}

struct ValueType {
  std::uint32_t code;
  std::size_t bytes;
};
/// Images use only the first one.
constexpr std::array<ValueType, 3> k_value_types = {{{0x08, 1}, {0x0B, 2}, {0x0C, 4}}};

/// A file read by zlib, compressed or not.
class GzipFile {
 public:
  explicit GzipFile(const std::string& path) : path_(path), file_(gzopen(path.c_str(), "rb")) {
    if (!file_) {
      throw DataError(fmt::format("{}: cannot open: {}", path_, std::strerror(errno)));
    }
    gzbuffer(file_.get(), k_gzip_buffer);
  }

  bool is_plain() const { return gzdirect(file_.get()) == 1; }

  /// Reads up to `size` bytes; fewer only at the end of the file.
  std::size_t read(std::uint8_t* to, std::size_t size) {
    const int got = gzread(file_.get(), to, static_cast<unsigned>(size));
    int code = Z_OK;
    const char* message = gzerror(file_.get(), &code);
    if (got < 0 || (code != Z_OK && code != Z_BUF_ERROR)) {
      const bool system = code == Z_ERRNO;
      throw DataError(fmt::format("{}: cannot read: {}; the file is damaged, get it again", path_,
                                  system ? std::strerror(errno) : message));
    }
    if (code == Z_BUF_ERROR) {
      throw DataError(
          fmt::format("{}: the gzip stream is cut off; the file is damaged, get it again", path_));
    }
    return static_cast<std::size_t>(got);
  }

 private:
  struct Close {
    void operator()(gzFile file) const { gzclose_r(file); }
  };
  std::string path_;
  std::unique_ptr<std::remove_pointer_t<gzFile>, Close> file_;
};

} // namespace

std::size_t idx_header_size(std::size_t dimensions) { return k_word * (1 + dimensions); }

IdxHeader parse_idx_header(const std::string& path, std::span<const std::uint8_t> header,
                           std::size_t dimensions) {
  const std::size_t size = idx_header_size(dimensions);
  if (header.size() < k_word) {
    throw DataError(fmt::format("{}: {} bytes are no IDX file, its header alone has {}", path,
                                header.size(), size));
  }
  const std::uint32_t magic = big_endian(header.data());
  const bool are_labels = dimensions == 1;
  const auto types = std::span(k_value_types).first(are_labels ? k_value_types.size() : 1);
  const auto type = std::find_if(types.begin(), types.end(), [&](const ValueType& one) {
    return magic == (one.code << 8 | static_cast<std::uint32_t>(dimensions));
  });
  if (type == types.end()) {
    throw DataError(fmt::format(
        "{}: magic number {} where IDX {} have {}; this is another kind of file", path, magic,
        are_labels ? "labels" : "images", are_labels ? "2049, 2817 or 3073" : "2051"));
  }
  if (header.size() < size) {
    throw DataError(
        fmt::format("{}: the header is cut off at {} of {} bytes", path, header.size(), size));
  }
  std::vector<std::uint32_t> found;
  std::uint64_t total = type->bytes;
  for (std::size_t i = 1; i <= dimensions; ++i) {
    const std::uint32_t dimension = big_endian(header.data() + i * k_word);
    found.push_back(dimension);
    if (dimension != 0 && total > k_max_idx_bytes / dimension) {
      throw DataError(fmt::format("{}: dimensions {} are more than {} bytes; the header is damaged",
                                  path, fmt::join(found, " × "), k_max_idx_bytes));
    }
    total *= dimension;
  }
  return {found, type->bytes};
}

IdxArray read_idx(const std::string& path, std::size_t dimensions) {
  GzipFile file(path);
  std::vector<std::uint8_t> header(idx_header_size(dimensions));
  header.resize(file.read(header.data(), header.size()));
  IdxArray array;
  array.header = parse_idx_header(path, header, dimensions);
  const auto& sizes = array.header.dimensions;
  const std::uint64_t total =
      std::accumulate(sizes.begin(), sizes.end(), std::uint64_t{array.header.value_bytes},
                      std::multiplies<std::uint64_t>());
  if (auto mapped = file.is_plain() ? Bytes::map(path, header.size(), total) : std::nullopt) {
    array.values = std::move(*mapped);
    return array;
  }
  std::vector<std::uint8_t> values;
  while (values.size() < total) {
    const std::size_t have = values.size();
    const std::size_t want = std::min<std::uint64_t>(k_read_size, total - have);
    values.resize(have + want);
    const std::size_t read = file.read(values.data() + have, want);
    if (read < want) {
      throw DataError(fmt::format("{}: truncated: {} of {} bytes of values ({})", path, have + read,
                                  total, fmt::join(sizes, " × ")));
    }
  }
  std::uint8_t extra = 0;
  if (file.read(&extra, 1) != 0) {
    throw DataError(fmt::format("{}: longer than the {} bytes of values that its header says ({})",
                                path, total, fmt::join(sizes, " × ")));
  }
  array.values = std::move(values);
  return array;
}

std::int32_t idx_value(const std::uint8_t* values, std::size_t value_bytes, std::uint64_t number) {
  const std::uint8_t* const at = values + number * value_bytes;
  switch (value_bytes) {
  case 4:
    return static_cast<std::int32_t>(big_endian(at));
  case 2:
    return static_cast<std::int16_t>(at[0] << 8 | at[1]);
  default:
    return *at;
  }
}

} // namespace trainer
