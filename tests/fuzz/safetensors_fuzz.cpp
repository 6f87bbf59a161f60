// Checkpoints: any bytes are read or refused with a DataError.
#include <cstddef>
#include <cstdint>
#include <span>

#include "trainer/checkpoint/safetensors.h"
#include "trainer/errors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    trainer::parse_safetensors(std::as_bytes(std::span(data, size)), "input");
  } catch (const trainer::DataError&) {
    return 0;
  }
  return 0;
}
