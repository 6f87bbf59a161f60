#include "backends/kubernetes/api/web_socket_frames.h"

#include "submit/errors.h"

#include <doctest/doctest.h>

#include <string>

using namespace dtrain::kubernetes;
using dtrain::EngineError;

namespace {

/// A frame of the server's, of at most 125 bytes.
std::string frame(unsigned first, const std::string& payload) {
  return std::string{static_cast<char>(first), static_cast<char>(payload.size())} + payload;
}

constexpr Mask k_mask = {0x37, 0xfa, 0x21, 0x3d};

} // namespace

TEST_CASE("a client's frame is as RFC 6455 shows it") {
  // 5.7: a single-frame masked text message that contains "Hello".
  CHECK(client_frame(Opcode::text, "Hello", k_mask) ==
        "\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58");
  // 1.3
  CHECK(accept_of("dGhlIHNhbXBsZSBub25jZQ==") == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
}

TEST_CASE("a client's frame says its length in 7, 16 or 64 bits") {
  const Mask none{};
  for (const std::size_t size : {0U, 125U, 126U, 65535U, 65536U}) {
    const std::string text(size, 'x');
    std::string bytes = client_frame(Opcode::binary, text, none);
    CHECK(bytes.size() == size + 4 + (size < 126 ? 2 : size < 65536 ? 4 : 10));
    // The server's frame is the same without mask.
    const std::size_t head = bytes.size() - size - 4;
    bytes.erase(head, 4);
    bytes[1] = static_cast<char>(static_cast<unsigned char>(bytes[1]) & 0x7fU);
    FrameReader reader;
    reader.feed(bytes);
    const auto message = reader.next();
    REQUIRE(message.has_value());
    CHECK(message->payload == text);
  }
}

TEST_CASE("messages are put together from pieces of any size, with control frames amid them") {
  const std::string bytes = frame(0x02, "one ") + frame(0x89, "ping") + frame(0x00, "two ") +
                            frame(0x80, "three") + frame(0x82, "") + frame(0x88, "");
  for (std::size_t step = 1; step <= bytes.size(); ++step) {
    FrameReader reader;
    std::string seen;
    for (std::size_t at = 0; at < bytes.size(); at += step) {
      reader.feed(std::string_view(bytes).substr(at, step));
      while (const auto message = reader.next()) {
        seen += std::to_string(static_cast<int>(message->opcode)) + ":" + message->payload + ";";
      }
    }
    CHECK(seen == "9:ping;2:one two three;2:;8:;");
  }
}

TEST_CASE("what is no frame of a server's is refused") {
  const std::string huge = std::string("\x82\x7f", 2) + std::string(8, '\x7f');
  const std::string over = std::string("\x82\x7f\0\0\0\0\x01\0\0\x01", 10);
  for (const std::string& bytes :
       {frame(0xc2, "reserved bit"), frame(0x83, "unknown opcode"), frame(0x80, "no beginning"),
        frame(0x02, "part") + frame(0x82, "another"), frame(0x09, "control in parts"),
        std::string("\x82\x80\0\0\0\0", 6), std::string("\x88\x7e\0\x80", 4), huge, over}) {
    FrameReader reader;
    reader.feed(bytes);
    CHECK_THROWS_AS(while (reader.next()){}, EngineError);
  }
}

TEST_CASE("a message of many parts is refused once it is too long") {
  FrameReader reader;
  const std::string part(1U << 20, 'x');
  const auto head = [](unsigned first) {
    return std::string{static_cast<char>(first), '\x7f', 0, 0, 0, 0, 0, '\x10', 0, 0};
  };
  reader.feed(head(0x02) + part);
  CHECK_THROWS_AS(
      {
        for (std::size_t i = 1; i <= FrameReader::k_longest_message / part.size(); ++i) {
          reader.next();
          reader.feed(head(0x00) + part);
        }
        reader.next();
      },
      EngineError);
}
