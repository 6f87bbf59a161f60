#include "backends/kubernetes/submission/ssh_key.h"

#include "backends/support/os/shared_library.h"
#include "submit/errors.h"
#include "submit/text/base64.h"

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <memory>

namespace dtrain::kubernetes {
namespace {

constexpr const char* k_type = "ssh-ed25519";
constexpr int k_ed25519 = 1087; // EVP_PKEY_ED25519
constexpr std::size_t k_half = 32;

/// The functions of libcrypto that are used; its types are opaque.
struct CryptoLibrary {
  void* (*new_context)(int type, void* engine);
  void (*free_context)(void* context);
  int (*keygen_init)(void* context);
  int (*keygen)(void* context, void** key);
  int (*raw_private)(const void* key, unsigned char* bytes, std::size_t* size);
  int (*raw_public)(const void* key, unsigned char* bytes, std::size_t* size);
  void (*free_key)(void* key);
};

CryptoLibrary load() {
  const SharedLibrary library("libcrypto.so.3", "to make a launcher's key",
                              "on Debian, install the package libssl3");
  const auto find = [&](const char* name, auto& function) {
    library.find(name, function, "OpenSSL 3");
  };
  CryptoLibrary crypto{};
  find("EVP_PKEY_CTX_new_id", crypto.new_context);
  find("EVP_PKEY_CTX_free", crypto.free_context);
  find("EVP_PKEY_keygen_init", crypto.keygen_init);
  find("EVP_PKEY_keygen", crypto.keygen);
  find("EVP_PKEY_get_raw_private_key", crypto.raw_private);
  find("EVP_PKEY_get_raw_public_key", crypto.raw_public);
  find("EVP_PKEY_free", crypto.free_key);
  return crypto;
}

std::string number(std::uint32_t value) {
  constexpr int k_byte = 8;
  std::string bytes;
  for (int shift = 3 * k_byte; shift >= 0; shift -= k_byte) {
    bytes += static_cast<char>(value >> shift & 0xffU);
  }
  return bytes;
}

/// RFC 4251's string: its length, then its bytes.
std::string counted(std::string_view bytes) {
  return number(static_cast<std::uint32_t>(bytes.size())) + std::string(bytes);
}

} // namespace

SshKey ssh_key_of(std::string_view seed, std::string_view public_half) {
  constexpr std::size_t k_block = 8; // Of the cipher "none".
  constexpr std::size_t k_line = 70;
  const std::string public_blob = counted(k_type) + counted(public_half);
  // Two equal numbers prove that the passphrase was right; here there is none.
  std::string secret = number(0) + number(0) + public_blob +
                       counted(std::string(seed) + std::string(public_half)) + counted("");
  for (char pad = 1; secret.size() % k_block != 0; ++pad) {
    secret += pad;
  }
  std::string whole("openssh-key-v1", sizeof "openssh-key-v1"); // Including its NUL.
  whole += counted("none") + counted("none") + counted("") + number(1) + counted(public_blob) +
           counted(secret);
  const std::string text = base64_encode(whole);
  SshKey key;
  key.private_text = "-----BEGIN OPENSSH PRIVATE KEY-----\n";
  for (std::size_t at = 0; at < text.size(); at += k_line) {
    key.private_text += text.substr(at, k_line) + "\n";
  }
  key.private_text += "-----END OPENSSH PRIVATE KEY-----\n";
  key.public_text = fmt::format("{} {}", k_type, base64_encode(public_blob));
  return key;
}

SshKey make_ssh_key() {
  static const CryptoLibrary crypto = load();
  const std::unique_ptr<void, void (*)(void*)> context(crypto.new_context(k_ed25519, nullptr),
                                                       crypto.free_context);
  void* made = nullptr;
  if (!context || crypto.keygen_init(context.get()) != 1 ||
      crypto.keygen(context.get(), &made) != 1) {
    throw EngineError("libcrypto cannot make a key for the job's launcher");
  }
  const std::unique_ptr<void, void (*)(void*)> key(made, crypto.free_key);
  std::array<unsigned char, k_half> seed{};
  std::array<unsigned char, k_half> public_half{};
  std::size_t seed_size = seed.size();
  std::size_t public_size = public_half.size();
  if (crypto.raw_private(key.get(), seed.data(), &seed_size) != 1 || seed_size != k_half ||
      crypto.raw_public(key.get(), public_half.data(), &public_size) != 1 ||
      public_size != k_half) {
    throw EngineError("libcrypto cannot give the key that it made for the job's launcher");
  }
  return ssh_key_of(std::string(seed.begin(), seed.end()),
                    std::string(public_half.begin(), public_half.end()));
}

} // namespace dtrain::kubernetes
