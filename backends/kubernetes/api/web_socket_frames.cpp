#include "backends/kubernetes/api/web_socket_frames.h"

#include "submit/errors.h"
#include "submit/text/base64.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <utility>

namespace dtrain::kubernetes {
namespace {

constexpr unsigned k_final = 0x80;
constexpr unsigned k_reserved = 0x70;
constexpr unsigned k_opcode = 0x0f;
constexpr unsigned k_masked = 0x80;
constexpr unsigned k_length = 0x7f;
constexpr unsigned k_length_16 = 126;
constexpr unsigned k_length_64 = 127;
constexpr std::size_t k_longest_control = 125;
constexpr int k_byte_bits = 8;
constexpr std::string_view k_accept_suffix =
    "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"; // RFC 6455, 1.3

bool is_control(Opcode opcode) { return opcode >= Opcode::close; }

bool is_known(unsigned opcode) {
  return opcode <= static_cast<unsigned>(Opcode::binary) ||
         (opcode >= static_cast<unsigned>(Opcode::close) &&
          opcode <= static_cast<unsigned>(Opcode::pong));
}

[[noreturn]] void refuse(std::string_view what) {
  throw EngineError(fmt::format("the cluster breaks the WebSocket protocol: {}", what));
}

void append_number(std::string& text, std::uint64_t number, int bytes) {
  for (int shift = (bytes - 1) * k_byte_bits; shift >= 0; shift -= k_byte_bits) {
    text += static_cast<char>(number >> shift);
  }
}

std::uint64_t number_of(std::string_view bytes) {
  std::uint64_t number = 0;
  for (const char byte : bytes) {
    number = number << k_byte_bits | static_cast<unsigned char>(byte);
  }
  return number;
}

} // namespace

std::string client_frame(Opcode opcode, std::string_view payload, const Mask& mask) {
  std::string frame;
  frame.reserve(payload.size() + 14);
  frame += static_cast<char>(k_final | static_cast<unsigned>(opcode));
  if (payload.size() < k_length_16) {
    frame += static_cast<char>(k_masked | payload.size());
  } else if (payload.size() <= UINT16_MAX) {
    frame += static_cast<char>(k_masked | k_length_16);
    append_number(frame, payload.size(), sizeof(std::uint16_t));
  } else {
    frame += static_cast<char>(k_masked | k_length_64);
    append_number(frame, payload.size(), sizeof(std::uint64_t));
  }
  frame.append(mask.begin(), mask.end());
  for (std::size_t i = 0; i < payload.size(); ++i) {
    frame += static_cast<char>(static_cast<unsigned char>(payload[i]) ^ mask[i % mask.size()]);
  }
  return frame;
}

std::string accept_of(std::string_view key) {
  const std::string text = std::string(key) + std::string(k_accept_suffix);
  std::array<char, EVP_MAX_MD_SIZE> digest{};
  unsigned size = 0;
  if (EVP_Digest(text.data(), text.size(), reinterpret_cast<unsigned char*>(digest.data()), &size,
                 EVP_sha1(), nullptr) != 1) {
    throw Error("cannot compute digests: OpenSSL has no SHA-1");
  }
  return base64_encode({digest.data(), size});
}

std::optional<Message> FrameReader::take_frame(bool& final) {
  const std::string_view bytes = std::string_view(bytes_).substr(taken_);
  std::size_t head = 2;
  if (bytes.size() < head) {
    return std::nullopt;
  }
  const unsigned first = static_cast<unsigned char>(bytes[0]);
  const unsigned second = static_cast<unsigned char>(bytes[1]);
  if ((first & k_reserved) != 0 || !is_known(first & k_opcode)) {
    refuse(fmt::format("a frame begins with {:#04x}", first));
  }
  if ((second & k_masked) != 0) {
    refuse("a frame of the server is masked");
  }
  const auto opcode = static_cast<Opcode>(first & k_opcode);
  std::uint64_t length = second & k_length;
  if (length >= k_length_16) {
    const std::size_t size = length == k_length_64 ? sizeof(std::uint64_t) : sizeof(std::uint16_t);
    if (bytes.size() < head + size) {
      return std::nullopt;
    }
    length = number_of(bytes.substr(head, size));
    head += size;
  }
  final = (first & k_final) != 0;
  if (is_control(opcode) && (!final || length > k_longest_control)) {
    refuse("a control frame is in parts, or too long");
  }
  const std::size_t before = partial_ ? partial_->payload.size() : 0;
  if (length > k_longest_message - before) {
    refuse(fmt::format("a message of more than {} bytes", k_longest_message));
  }
  if (bytes.size() - head < length) {
    return std::nullopt;
  }
  Message frame{opcode, std::string(bytes.substr(head, length))};
  taken_ += head + length;
  if (taken_ == bytes_.size() || taken_ > bytes_.size() / 2) {
    bytes_.erase(0, std::exchange(taken_, 0));
  }
  return frame;
}

std::optional<Message> FrameReader::next() {
  bool final = false;
  while (std::optional<Message> frame = take_frame(final)) {
    if (is_control(frame->opcode)) {
      return frame;
    }
    if ((frame->opcode == Opcode::continuation) != partial_.has_value()) {
      refuse(partial_ ? "a message begins before the last one has ended"
                      : "a continuation of a message that never began");
    }
    if (partial_) {
      partial_->payload += frame->payload;
    } else {
      partial_ = std::move(frame);
    }
    if (final) {
      return std::exchange(partial_, std::nullopt);
    }
  }
  return std::nullopt;
}

} // namespace dtrain::kubernetes
