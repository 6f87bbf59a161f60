#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace trainer {

/// Where pip puts NVIDIA's libraries, as PyTorch's wheels bring them: the folders
/// site-packages/nvidia/*/lib of the virtual environment (VIRTUAL_ENV, CONDA_PREFIX), then of the
/// first python3 of `path`, then of /usr/local. Those that exist, in that order.
std::vector<std::filesystem::path> wheel_folders(const char* virtual_env, const char* conda_prefix,
                                                 const char* path);

/// dlopen()s a library of CUDA's (libnccl.so.2) and never closes it: as the loader finds any
/// library, or beside the plug-in; else in wheel_folders(). Null, with the loader's words in `why`,
/// where it is in none of them.
void* open_library(const char* name, std::string& why);

} // namespace trainer
