// A library of the system, loaded when it is first of use.
#pragma once

#include <string>

namespace dtrain {

class SharedLibrary {
 public:
  /// Opened for the life of the program. Throws EngineError, which says what `name` is needed for
  /// and how to have it: "libcurl.so.4 is needed TO and cannot be loaded (…); HINT".
  SharedLibrary(std::string name, const std::string& to, const std::string& hint);

  /// Sets `function` to the library's of that name. Throws EngineError where it has none, which
  /// says what version is needed.
  template <typename Function>
  void find(const char* name, Function& function, const char* version) const {
    function = reinterpret_cast<Function>(symbol(name, version));
  }

 private:
  void* symbol(const char* name, const char* version) const;

  std::string name_;
  void* handle_;
};

} // namespace dtrain
