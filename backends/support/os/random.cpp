#include "backends/support/os/random.h"

#include "backends/support/os/files.h"
#include "submit/errors.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <vector>

namespace dtrain {

void fill_random(std::span<unsigned char> bytes) {
  if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    throw EngineError(fmt::format("cannot get random numbers: {}", errno_text()));
  }
}

std::string random_hex(std::size_t bytes) {
  std::vector<unsigned char> raw(bytes);
  fill_random(raw);
  std::string text;
  for (const auto byte : raw) {
    text += fmt::format("{:02x}", byte);
  }
  return text;
}

} // namespace dtrain
