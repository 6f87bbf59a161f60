#include "trainer/device/cuda/open_library.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <system_error>

#include <dlfcn.h>

namespace trainer {
namespace {

namespace fs = std::filesystem;

/// Entries of a folder, sorted by name; empty if it cannot be read.
std::vector<fs::path> entries(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator it(folder, error); !error && it != fs::directory_iterator();
       it.increment(error)) {
    found.push_back(it->path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

/// Adds the folders PREFIX/lib/python3*/{site,dist}-packages/nvidia/*/lib.
void add_folders(const fs::path& prefix, std::vector<fs::path>& to) {
  std::error_code error;
  for (const fs::path& python : entries(prefix / "lib")) {
    if (!python.filename().string().starts_with("python3")) {
      continue;
    }
    for (const char* packages : {"site-packages", "dist-packages"}) {
      for (const fs::path& package : entries(python / packages / "nvidia")) {
        if (const fs::path folder = package / "lib"; fs::is_directory(folder, error)) {
          to.push_back(folder);
        }
      }
    }
  }
}

/// The folder above bin/python3, without resolving links: a virtual environment's python3 is a link
/// to a Python elsewhere.
fs::path prefix_of_python(std::string_view path) {
  std::error_code error;
  while (!path.empty()) {
    const std::size_t end = std::min(path.find(':'), path.size());
    if (const fs::path folder = path.substr(0, end);
        folder.is_absolute() && fs::exists(folder / "python3", error)) {
      return folder.parent_path();
    }
    path.remove_prefix(std::min(end + 1, path.size()));
  }
  return {};
}

} // namespace

std::vector<fs::path> wheel_folders(const char* virtual_env, const char* conda_prefix,
                                    const char* path) {
  std::vector<fs::path> prefixes;
  for (const char* environment : {virtual_env, conda_prefix}) {
    if (environment != nullptr && *environment != '\0') {
      prefixes.emplace_back(environment);
    }
  }
  if (const fs::path prefix = prefix_of_python(path == nullptr ? "" : path); !prefix.empty()) {
    prefixes.push_back(prefix);
  }
  prefixes.emplace_back("/usr/local");
  std::vector<fs::path> found;
  for (const fs::path& prefix : prefixes) {
    if (prefix.is_absolute()) {
      add_folders(prefix, found);
    }
  }
  return found;
}

void* open_library(const char* name, std::string& why,
                   const std::function<bool(void*)>& is_new_enough) {
  void* first = nullptr;
  const auto open = [&](const fs::path& place) -> void* { // Null: not there, or too old.
    void* const library = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (library == nullptr) {
      why = dlerror();
    } else if (is_new_enough(library)) {
      return library;
    } else if (first == nullptr) {
      first = library;
    }
    return nullptr;
  };
  if (void* const library = open(name); library != nullptr) {
    return library;
  }
  for (const fs::path& folder : wheel_folders(std::getenv("VIRTUAL_ENV"),
                                              std::getenv("CONDA_PREFIX"), std::getenv("PATH"))) {
    std::error_code error;
    if (!fs::exists(folder / name, error)) {
      continue;
    }
    if (void* const library = open(folder / name); library != nullptr) {
      return library;
    }
  }
  return first;
}

} // namespace trainer
