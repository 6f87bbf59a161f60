// SHA-256, by OpenSSL.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace dtrain {

class Digest {
 public:
  Digest();
  void add(std::string_view bytes);
  /// In lower-case hexadecimal, of all bytes added. Ends the digest.
  std::string hex();

 private:
  struct Free {
    void operator()(void* context) const;
  };
  std::unique_ptr<void, Free> context_;
};

std::string digest_of(std::string_view bytes);

} // namespace dtrain
