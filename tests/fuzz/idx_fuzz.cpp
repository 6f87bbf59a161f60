// IDX: any bytes are read or refused with a DataError.
#include <unistd.h>

#include <cstdint>
#include <string>

#include "trainer/data/idx.h"
#include "trainer/data/labels.h"
#include "trainer/errors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const int file = [] {
    std::string name = "/tmp/dtrain-idx-fuzz-XXXXXX";
    const int opened = mkstemp(name.data());
    unlink(name.c_str());
    return opened;
  }();
  if (ftruncate(file, 0) != 0 || pwrite(file, data, size, 0) != static_cast<ssize_t>(size)) {
    return 0;
  }
  const std::string path = "/proc/self/fd/" + std::to_string(file);
  for (const bool are_labels : {false, true}) {
    try {
      are_labels ? (void)trainer::read_labels(path, 300) : (void)trainer::read_idx(path, 3);
    } catch (const trainer::DataError&) {
      continue;
    }
  }
  return 0;
}
