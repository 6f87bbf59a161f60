#include "backends/support/os/shared_library.h"

#include "submit/errors.h"

#include <fmt/format.h>

#include <utility>

#include <dlfcn.h>

namespace dtrain {

SharedLibrary::SharedLibrary(std::string name, const std::string& to, const std::string& hint)
    : name_(std::move(name)), handle_(dlopen(name_.c_str(), RTLD_NOW | RTLD_LOCAL)) {
  if (handle_ == nullptr) {
    throw EngineError(
        fmt::format("cannot load {}, needed {} ({}); {}", name_, to, dlerror(), hint));
  }
}

void* SharedLibrary::symbol(const char* name, const char* version) const {
  void* found = dlsym(handle_, name);
  if (found == nullptr) {
    throw EngineError(fmt::format("{} has no {}: {} is needed", name_, name, version));
  }
  return found;
}

} // namespace dtrain
