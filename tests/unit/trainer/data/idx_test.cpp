#include "trainer/data/idx.h"

#include <doctest/doctest.h>
#include <zlib.h>

#include "tests/unit/trainer/temp_folder.h"
#include "trainer/errors.h"

using namespace trainer;

namespace {

std::string word(std::uint32_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16),
          static_cast<char>(value >> 8), static_cast<char>(value)};
}

std::string images(std::uint32_t count, std::uint32_t height, std::uint32_t width) {
  std::string file = word(2051) + word(count) + word(height) + word(width);
  for (std::uint32_t i = 0; i < count * height * width; ++i) {
    file += static_cast<char>(i);
  }
  return file;
}

void write_gzip(const std::string& path, const std::string& content) {
  gzFile file = gzopen(path.c_str(), "wb");
  gzwrite(file, content.data(), static_cast<unsigned>(content.size()));
  gzclose(file);
}

std::string error_of(const std::string& path) {
  return message_of<DataError>([&] { read_idx(path, 3); });
}

} // namespace

TEST_CASE("an IDX file reads the same plain and gzipped") {
  const TempFolder folder;
  const std::string plain = folder.write("plain", images(3, 2, 5));
  write_gzip(folder / "packed.gz", images(3, 2, 5));
  for (const std::string& path : {plain, folder / "packed.gz"}) {
    const IdxArray array = read_idx(path, 3);
    CHECK(array.header.dimensions == std::vector<std::uint32_t>{3, 2, 5});
    REQUIRE(array.values.size() == 30);
    CHECK(array.values[29] == 29);
    CHECK(array.values.is_mapped() == (path == plain)); // Whose pages all processes share.
  }
}

TEST_CASE("a truncated IDX file is refused with its name and lengths") {
  const TempFolder folder;
  const std::string whole = images(3, 2, 5);
  const std::string message = error_of(folder.write("short", whole.substr(0, whole.size() - 7)));
  CHECK(contains(message, folder / "short"));
  CHECK(contains(message, "23 of 30 bytes"));
  CHECK(contains(error_of(folder.write("header", whole.substr(0, 9))), "9 of 16 bytes"));
  CHECK(contains(error_of(folder.write("empty", "")), "0 bytes"));
}

TEST_CASE("a gzip stream that is cut off or damaged is refused") {
  const TempFolder folder;
  write_gzip(folder / "whole.gz", images(100, 20, 20));
  std::string packed = read_file(folder / "whole.gz");
  CHECK(contains(error_of(folder.write("cut.gz", packed.substr(0, packed.size() / 2))), "cut.gz"));
  packed[packed.size() / 2] = static_cast<char>(packed[packed.size() / 2] ^ 0x55);
  CHECK(contains(error_of(folder.write("bad.gz", packed)), "bad.gz"));
}

TEST_CASE("a file of another kind is refused by its magic number") {
  const TempFolder folder;
  const std::string message = error_of(folder.write("labels", word(2049) + word(3) + "abc"));
  CHECK(contains(message, "magic number 2049 where IDX images have 2051"));
}

TEST_CASE("labels are bytes, or numbers of 16 or 32 bits, and images are bytes") {
  const TempFolder folder;
  const std::string bytes = folder.write("bytes", word(2049) + word(2) + "\xff\x07");
  const std::string shorts = folder.write("shorts", word(2817) + word(1) + word(0x7fff).substr(2));
  const std::string longs = folder.write("longs", word(3073) + word(2) + word(7) + word(-3U));
  const auto first = [](const std::string& path, std::size_t size) {
    const IdxArray array = read_idx(path, 1);
    CHECK(array.header.value_bytes == size);
    return idx_value(array.values.data(), size, array.header.dimensions[0] - 1);
  };
  CHECK(first(bytes, 1) == 7);
  CHECK(first(shorts, 2) == 0x7fff);
  CHECK(first(longs, 4) == -3);
  const auto labels_error = [](const std::string& path) {
    return message_of<DataError>([&] { read_idx(path, 1); });
  };
  CHECK(contains(labels_error(folder.write("floats", word(0xD01) + word(1) + word(0))),
                 "magic number 3329 where IDX labels have 2049, 2817 or 3073"));
  CHECK(contains(labels_error(folder.write("short", word(3073) + word(2) + word(7) + "abc")),
                 "7 of 8 bytes"));
  CHECK(contains(labels_error(folder.write("long", word(2817) + word(1) + "abc")),
                 "longer than the 2 bytes"));
  CHECK(contains(labels_error(folder.write("cut", word(2817) + "ab")), "6 of 8 bytes"));
  CHECK(contains(error_of(folder.write("wide", word(0xB03) + word(1) + word(1) + word(1) + "ab")),
                 "magic number 2819 where IDX images have 2051"));
}

TEST_CASE("dimensions whose product is absurd are refused before memory is taken") {
  const TempFolder folder;
  const std::uint32_t huge = 0xFFFFFFFF;
  CHECK(contains(
      error_of(folder.write("huge", word(2051) + word(huge) + word(huge) + word(huge) + "x")),
      "the header is damaged"));
  CHECK(contains(error_of(folder.write("big", word(2051) + word(60000) + word(1000) + word(1000))),
                 "0 of 60000000000 bytes"));
  // 2^36 bytes are the most.
  CHECK(contains(error_of(folder.write("most", word(2051) + word(65536) + word(1024) + word(1024))),
                 "0 of 68719476736 bytes"));
  CHECK(contains(error_of(folder.write("more", word(2051) + word(65536) + word(1024) + word(1025))),
                 "the header is damaged"));
}

TEST_CASE("an IDX file longer than its header says is refused") {
  const TempFolder folder;
  CHECK(contains(error_of(folder.write("long", images(1, 2, 2) + "x")), "longer than the 4 bytes"));
}

TEST_CASE("a file that is not there is named") {
  CHECK(contains(error_of("/nonexistent/images"), "/nonexistent/images: cannot open"));
}
