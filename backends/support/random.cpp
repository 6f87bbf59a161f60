#include "backends/support/random.h"

#include "backends/support/files.h"
#include "submit/errors.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <vector>

namespace dtrain {

std::string random_hex(std::size_t bytes) {
  std::vector<unsigned char> raw(bytes);
  if (getrandom(raw.data(), raw.size(), 0) != static_cast<ssize_t>(raw.size())) {
    throw EngineError(fmt::format("no random numbers: {}", errno_text()));
  }
  std::string text;
  for (const auto byte : raw) {
    text += fmt::format("{:02x}", byte);
  }
  return text;
}

} // namespace dtrain
