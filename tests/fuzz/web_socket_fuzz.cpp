// The server's bytes, in two pieces: frames or a refusal, never more memory than a message may
// have.
#include "backends/kubernetes/api/web_socket_frames.h"
#include "submit/errors.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using dtrain::kubernetes::FrameReader;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  FrameReader reader;
  std::size_t total = 0;
  try {
    for (const std::string_view piece : {bytes.substr(0, size / 2), bytes.substr(size / 2)}) {
      reader.feed(piece);
      while (const auto message = reader.next()) {
        total += message->payload.size();
      }
    }
  } catch (const dtrain::EngineError&) {
  }
  if (total > size) { // More than there was.
    std::abort();
  }
  return 0;
}
