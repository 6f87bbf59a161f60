// TF_CONFIG: any text is parsed or refused with a ClusterError of one line.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "trainer/cluster/cluster.h"
#include "trainer/errors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  try {
    trainer::parse_tf_config(text);
  } catch (const trainer::ClusterError& error) {
    if (std::string(error.what()).find('\n') != std::string::npos) {
      std::abort();
    }
  }
  return 0;
}
