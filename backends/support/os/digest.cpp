#include "backends/support/os/digest.h"

#include "submit/errors.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <array>

namespace dtrain {

namespace {

EVP_MD_CTX* of(void* context) { return static_cast<EVP_MD_CTX*>(context); }

} // namespace

void Digest::Free::operator()(void* context) const { EVP_MD_CTX_free(of(context)); }

Digest::Digest() : context_(EVP_MD_CTX_new()) {
  if (!context_ || EVP_DigestInit_ex(of(context_.get()), EVP_sha256(), nullptr) != 1) {
    throw Error("cannot compute digests: OpenSSL has no SHA-256");
  }
}

void Digest::add(std::string_view bytes) {
  EVP_DigestUpdate(of(context_.get()), bytes.data(), bytes.size());
}

std::string Digest::hex() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> bytes{};
  unsigned size = 0;
  EVP_DigestFinal_ex(of(context_.get()), bytes.data(), &size);
  std::string text;
  for (unsigned i = 0; i < size; ++i) {
    text += fmt::format("{:02x}", bytes[i]);
  }
  return text;
}

std::string digest_of(std::string_view bytes) {
  Digest digest;
  digest.add(bytes);
  return digest.hex();
}

} // namespace dtrain
