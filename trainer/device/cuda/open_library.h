#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace trainer {

/// Folders where pip installs NVIDIA's libraries for PyTorch: site-packages/nvidia/*/lib of the
/// virtual environment (VIRTUAL_ENV, CONDA_PREFIX), then of the first python3 in `path`, then of
/// /usr/local. Only those that exist, in that order.
std::vector<std::filesystem::path> wheel_folders(const char* virtual_env, const char* conda_prefix,
                                                 const char* path);

/// dlopen()s a library of CUDA (libnccl.so.2) and never closes it: from the loader's path, from
/// beside the plug-in, or from wheel_folders(). The first that `is_new_enough`, or, where none is,
/// the first. Null if it is in none of them; `why` is then the loader's error.
void* open_library(
    const char* name, std::string& why,
    const std::function<bool(void*)>& is_new_enough = [](void* /*library*/) { return true; });

} // namespace trainer
