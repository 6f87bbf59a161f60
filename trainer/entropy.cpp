#include "trainer/entropy.h"

#include <cerrno>
#include <system_error>

#include <sys/random.h>

#include "trainer/errors.h"

namespace trainer {

void fill_from_entropy(std::span<std::byte> bytes) {
  if (getentropy(bytes.data(), bytes.size()) != 0) {
    throw Error("getentropy: " + std::generic_category().message(errno));
  }
}

} // namespace trainer
