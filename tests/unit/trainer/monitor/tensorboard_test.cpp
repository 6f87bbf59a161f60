#include "trainer/monitor/tensorboard.h"

#include <doctest/doctest.h>

#include <cstring>

#include "tests/unit/trainer/temp_folder.h"
#include "trainer/monitor/console.h"
#include "trainer/monitor/crc32c.h"

using namespace trainer;

namespace {

template <typename Number>
Number take(std::string_view& bytes) {
  Number number{};
  REQUIRE(bytes.size() >= sizeof(number));
  std::memcpy(&number, bytes.data(), sizeof(number));
  bytes.remove_prefix(sizeof(number));
  return number;
}

/// The data of each record, framing checked.
std::vector<std::string> records(const std::string& file) {
  std::string_view bytes = file;
  std::vector<std::string> all;
  while (!bytes.empty()) {
    const std::string_view framed_length = bytes.substr(0, 8);
    const auto length = take<std::uint64_t>(bytes);
    CHECK(take<std::uint32_t>(bytes) == masked_crc32c(framed_length));
    REQUIRE(bytes.size() >= length);
    const std::string_view data = bytes.substr(0, length);
    bytes.remove_prefix(length);
    CHECK(take<std::uint32_t>(bytes) == masked_crc32c(data));
    all.emplace_back(data);
  }
  return all;
}

} // namespace

TEST_CASE("CRC-32C has its known check value") { CHECK(crc32c("123456789") == 0xE3069283); }

TEST_CASE("a record's CRC is rotated right by 15 bits and offset, as TensorFlow's is") {
  CHECK(masked_crc32c("123456789") == 0xC78AB0E5);
}

TEST_CASE("a run that goes on behind a step has TensorBoard drop what comes later") {
  const TempFolder folder;
  TensorBoard board(folder / "logs");
  board.forget_after(299);
  const auto all = records(read_file(board.path()));
  REQUIRE(all.size() == 2);
  // field 2, varint 300; field 7, session_log: field 1, status START
  CHECK(all[1].ends_with(std::string("\x10\xAC\x02\x3A\x02\x08\x01", 7)));
}

TEST_CASE("an event file is framed records: the version, then scalars by tag and step") {
  const TempFolder folder;
  TensorBoard board(folder / "logs");
  board.scalars(300, {{"train/loss", 0.5}});
  const auto all = records(read_file(board.path()));
  REQUIRE(all.size() == 2);
  CHECK(contains(all[0], "brain.Event:2"));
  // field 2, varint 300; field 5, 18 bytes: value (1), 16: tag (1) "train/loss", float (2) 0.5
  CHECK(contains(all[1],
                 std::string("\x10\xAC\x02\x2A\x13\x0A\x11\x0A\x0Atrain/loss\x15\0\0\0\x3F", 24)));
}

TEST_CASE("numbers are grouped by thousands") {
  CHECK(with_commas(0) == "0");
  CHECK(with_commas(999) == "999");
  CHECK(with_commas(1000) == "1,000");
  CHECK(with_commas(1234567.4) == "1,234,567");
}
