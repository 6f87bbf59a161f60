#include "trainer/data/labels.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tests/unit/trainer/temp_folder.h"
#include "trainer/device/kernels.h"
#include "trainer/errors.h"

using namespace trainer;

namespace {

std::string big_endian(std::int64_t value, int bytes) {
  std::string text;
  for (int shift = 8 * bytes; shift > 0; shift -= 8) {
    text += static_cast<char>(value >> (shift - 8));
  }
  return text;
}

/// An IDX file of labels: its type's code, and the bytes of one.
std::string file_of(const std::vector<std::int32_t>& labels, int code, int bytes) {
  std::string file = big_endian(code << 8 | 1, 4) + big_endian(std::ssize(labels), 4);
  for (const std::int32_t label : labels) {
    file += big_endian(label, bytes);
  }
  return file;
}

std::vector<std::int32_t> read(const std::string& path, std::size_t classes) {
  const Bytes values = read_labels(path, classes);
  const DType type = label_type(classes);
  std::vector<std::int32_t> labels;
  for (std::size_t i = 0; i < values.size() / size_of(type); ++i) {
    labels.push_back(label_at(values.data(), type, i));
  }
  return labels;
}

std::string error_of(const std::string& path, std::size_t classes) {
  return message_of<DataError>([&] { read_labels(path, classes); });
}

} // namespace

TEST_CASE("labels are kept in the smallest type that holds their classes") {
  CHECK(label_type(2) == DType::u8);
  CHECK(label_type(256) == DType::u8);
  CHECK(label_type(257) == DType::i16);
  CHECK(label_type(1 << 15) == DType::i16);
  CHECK(label_type((1 << 15) + 1) == DType::i32);
}

TEST_CASE("labels of a file of any type are the same, whatever they are kept in") {
  const TempFolder folder;
  const std::vector<std::int32_t> few = {0, 255, 7};
  const std::string bytes = folder.write("bytes", file_of(few, 0x08, 1));
  const std::string shorts = folder.write("shorts", file_of(few, 0x0B, 2));
  const std::string longs = folder.write("longs", file_of(few, 0x0C, 4));
  for (const std::string& path : {bytes, shorts, longs}) {
    for (const std::size_t classes : {256, 1000, 100'000}) {
      CHECK(read(path, classes) == few);
    }
  }
  CHECK(read_labels(bytes, 256).is_mapped());
  CHECK(read_labels(longs, 256).size() == few.size());
  const std::vector<std::int32_t> many = {0x7fff, 0, 256};
  CHECK(read(folder.write("many", file_of(many, 0x0B, 2)), 1 << 15) == many);
  const std::vector<std::int32_t> most = {0x7fff'fffe, 0, 0x8000};
  CHECK(read(folder.write("most", file_of(most, 0x0C, 4)), 0x7fff'ffff) == most);
}

TEST_CASE("a label that no class has is refused with its file and position") {
  const TempFolder folder;
  const std::string high = folder.write("high", file_of({1, 999, 1000}, 0x0B, 2));
  CHECK(error_of(high, 1000) == high + ": label 1000 at position 2; labels are 0 to 999: are there "
                                       "more classes (--classes=N)?");
  CHECK(error_of(high, 1001).empty());
  for (const auto& [code, bytes] : {std::pair(0x0B, 2), {0x0C, 4}}) {
    const std::string low = folder.write("low", file_of({3, -1}, code, bytes));
    CHECK(error_of(low, 1000) == low + ": label -1 at position 1; labels are 0 to 999");
  }
}
