// WebSocket frames (RFC 6455), the client's side: pure, with no connection.
//
//   FIN 1 bit · reserved 3 · opcode 4 · masked 1 · length 7, or 126 and 16 bits, or 127 and 64 bits
//   · 4 bytes of mask from the client, none from the server · the payload
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace dtrain::kubernetes {

enum class Opcode : std::uint8_t { continuation = 0, text = 1, binary = 2, close = 8, ping, pong };

struct Message {
  Opcode opcode = Opcode::binary;
  std::string payload;
};

using Mask = std::array<unsigned char, 4>;

/// A whole message as one frame. Of a control frame (close, ping, pong) at most 125 bytes.
std::string client_frame(Opcode opcode, std::string_view payload, const Mask& mask);

/// The server's answer to `key` (Sec-WebSocket-Accept): base64 of SHA-1.
std::string accept_of(std::string_view key);

/// Puts frames together to messages.
class FrameReader {
 public:
  static constexpr std::size_t k_longest_message = 16U << 20;

  void feed(std::string_view bytes) { bytes_.append(bytes); }

  /// The next complete message, if it has arrived; control frames are returned as they come, also
  /// between parts of a message. Throws EngineError for bytes that are not a server's frames, and
  /// for a message longer than k_longest_message.
  std::optional<Message> next();

 private:
  std::optional<Message> take_frame(bool& final);

  std::string bytes_;
  std::size_t taken_ = 0; // Bytes of bytes_ in frames already returned.
  std::optional<Message> partial_;
};

} // namespace dtrain::kubernetes
