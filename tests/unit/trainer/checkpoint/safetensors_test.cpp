#include "trainer/checkpoint/safetensors.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstring>

#include "tests/unit/trainer/temp_folder.h"
#include "trainer/errors.h"

using namespace trainer;

namespace {

const SafeTensors k_content = {{{"step", "7"}},
                               {{"a", {2, 3}, {1, 2, 3, 4, 5, 6}}, {"b", {1}, {-1}}}};

void write_content(const std::string& path, const SafeTensors& content) {
  write_safetensors(path, content.metadata, content.tensors);
}

std::string with_header(const std::string& json, std::size_t data) {
  const std::uint64_t length = json.size();
  std::string file(sizeof(length), '\0');
  std::memcpy(file.data(), &length, sizeof(length));
  return file + json + std::string(data, '\0');
}

std::string error_of(const std::string& file) {
  return message_of<DataError>(
      [&] { parse_safetensors(std::as_bytes(std::span(file)), "checkpoint"); });
}

} // namespace

TEST_CASE("tensors and metadata come back as they were written") {
  const TempFolder folder;
  write_content(folder / "x.safetensors", k_content);
  const SafeTensors read = read_safetensors(folder / "x.safetensors");
  CHECK(read.metadata == k_content.metadata);
  REQUIRE(read.tensors.size() == 2);
  CHECK(read.tensors[0].name == "a");
  CHECK(read.tensors[0].shape == std::vector<std::size_t>{2, 3});
  CHECK(read.tensors[0].values == k_content.tensors[0].values);
}

TEST_CASE("a checkpoint cut off anywhere is refused") {
  const TempFolder folder;
  write_content(folder / "x", k_content);
  const std::string whole = read_file(folder / "x");
  for (std::size_t size = 0; size < whole.size(); ++size) {
    CHECK(contains(error_of(whole.substr(0, size)), "checkpoint: damaged"));
  }
}

TEST_CASE("headers that lie are refused") {
  for (const std::uint64_t past : {1, 7, 8}) { // Its end would lie so far behind the file's.
    std::string file = with_header("{}      ", 0);
    const std::uint64_t length = 8 + past;
    std::memcpy(file.data(), &length, sizeof(length));
    CHECK(contains(error_of(file), "a header of " + std::to_string(length) + " bytes in a file"));
  }
  CHECK(contains(error_of(with_header("[]", 0)), "no JSON object"));
  CHECK(contains(error_of(with_header("{", 0)), "not JSON"));
  CHECK(contains(
      error_of(with_header(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 8)),
      "do not fit its shape"));
  for (const char* const shape : {"1", R"({"of":1})", "null"}) {
    CHECK(contains(error_of(with_header(fmt::format(R"({{"a":{{"dtype":"F32","shape":{},)"
                                                    R"("data_offsets":[0,4]}}}})",
                                                    shape),
                                        4)),
                   "damaged: shape of a"));
  }
  CHECK(contains(
      error_of(with_header(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8)),
      "begins at 4 where 0 was expected"));
  CHECK(contains(error_of(with_header(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                                      R"("a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
                                      4)),
                 "occurs twice"));
  CHECK(contains(
      error_of(with_header(R"({"a":{"dtype":"F64","shape":[2],"data_offsets":[0,16]}})", 4)),
      "F32, F16, BF16 and I64 are read"));
  CHECK(contains(
      error_of(with_header(
          R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4]}})", 4)),
      "too large"));
  CHECK(contains(
      error_of(with_header(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 8)),
      "8 bytes of data where the header says 4"));
  CHECK(contains(error_of(with_header(R"({"a":3})", 0)), "the entry of a"));
  const std::string nested = std::string(1'000'000, '[') + std::string(1'000'000, ']');
  CHECK(contains(error_of(with_header(R"({"a":{"dtype":)" + nested + "}}", 0)), "is nested"));
  CHECK(contains(
      error_of(with_header(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4,8]}})", 4)),
      "data_offsets of a"));
}

TEST_CASE("a disk that is full leaves the old checkpoint and no other file") {
  const TempFolder folder;
  write_content(folder / "x", k_content);
  const std::string before = read_file(folder / "x");
  SafeTensors large = k_content;
  large.tensors.push_back({"c", {100'000}, std::vector<float>(100'000)});
  rlimit old{};
  getrlimit(RLIMIT_FSIZE, &old);
  const rlimit small{4096, old.rlim_max};
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &small);
  const std::string message = message_of<Error>([&] { write_content(folder / "x", large); });
  setrlimit(RLIMIT_FSIZE, &old);
  signal(SIGXFSZ, handler);
  CHECK(contains(message, "cannot write"));
  CHECK(read_file(folder / "x") == before);
  const std::filesystem::directory_iterator files(folder.path());
  CHECK(std::distance(begin(files), end(files)) == 1);
}

TEST_CASE("values of 16 bits and whole numbers are read as float32") {
  std::string file = with_header(R"({"a":{"dtype":"F16","shape":[1],"data_offsets":[0,2]},)"
                                 R"("b":{"dtype":"BF16","shape":[1],"data_offsets":[2,4]},)"
                                 R"("c":{"dtype":"I64","shape":[2],"data_offsets":[4,20]}})",
                                 0);
  file += std::string("\x00\xc1", 2) + std::string("\x20\xc0", 2); // -2.5, twice
  for (const std::int64_t value : {std::int64_t{-3}, std::int64_t{70'000}}) {
    file.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  const SafeTensors read = parse_safetensors(std::as_bytes(std::span(file)), "checkpoint");
  REQUIRE(read.tensors.size() == 3);
  CHECK(read.tensors[0].values == std::vector<float>{-2.5F});
  CHECK(read.tensors[1].values == std::vector<float>{-2.5F});
  CHECK(read.tensors[2].values == std::vector<float>{-3, 70'000});
}
