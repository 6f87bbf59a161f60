// Any bytes as a kubeconfig: a context is found in it, or one line says why not.
#include "backends/kubernetes/api/kubeconfig.h"
#include "submit/errors.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  try {
    dtrain::kubernetes::find_cluster(
        {"config", ""}, [](const char*) { return std::nullopt; },
        [&](const std::string& path) {
          return path == "config" ? std::optional(text) : std::nullopt;
        });
  } catch (const dtrain::Error& error) {
    if (std::string(error.what()).find('\n') != std::string::npos) {
      std::abort();
    }
  }
  return 0;
}
