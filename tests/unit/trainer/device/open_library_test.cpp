#include <doctest/doctest.h>

#include <filesystem>
#include <string>

#include <dlfcn.h>

#include "tests/unit/trainer/temp_folder.h"
#include "tests/unit/variable.h"
#include "trainer/device/cuda/open_library.h"

using namespace trainer;

namespace fs = std::filesystem;

TEST_CASE("libraries of NVIDIA's are looked for where pip puts them for the Python that is used") {
  const TempFolder folder;
  const fs::path root = folder.path();
  const fs::path torch = root / "torch/lib/python3.12/site-packages/nvidia";
  const fs::path system = root / "usr/lib/python3/dist-packages/nvidia";
  for (const fs::path& library : {torch / "cublas/lib", torch / "cu13/lib", system / "nccl/lib"}) {
    fs::create_directories(library);
  }
  fs::create_directories(torch / "headers/include"); // which has no libraries
  fs::create_directories(root / "empty");
  for (const char* prefix : {"torch", "usr"}) {
    fs::create_directories(root / prefix / "bin");
    fs::create_symlink("/usr/bin/python3", root / prefix / "bin/python3");
  }
  const std::string environment = (root / "torch").string();
  const std::string path = "relative::" + (root / "empty").string() + ":" +
                           (root / "usr/bin").string() + ":" + (root / "torch/bin").string();

  auto found = wheel_folders(environment.c_str(), "", path.c_str());
  REQUIRE(found.size() >= 3); // This machine may have some in /usr/local.
  CHECK(found[0] == torch / "cu13/lib");
  CHECK(found[1] == torch / "cublas/lib");
  CHECK(found[2] == system / "nccl/lib");

  found = wheel_folders(nullptr, nullptr, path.c_str());
  REQUIRE(!found.empty());
  CHECK(found[0] == system / "nccl/lib");
  CHECK(wheel_folders(nullptr, nullptr, nullptr) == wheel_folders("relative", "", ":"));
}

TEST_CASE("a library that is too old is passed over for one of a Python that is new enough") {
  const char* const name = "libdl.so.2"; // The system's, and a copy of another library.
  const TempFolder folder;
  const fs::path python = fs::path(folder.path()) / "lib/python3.12/site-packages/nvidia/dl/lib";
  fs::create_directories(python);
  Dl_info math{};
  REQUIRE(dladdr(dlsym(dlopen("libm.so.6", RTLD_NOW), "cos"), &math) != 0);
  fs::copy_file(math.dli_fname, python / name);
  const unit::Variable environment("VIRTUAL_ENV", folder.path().c_str());
  std::string why;
  const auto has_cosine = [](void* library) { return dlsym(library, "cos") != nullptr; };
  void* const found = open_library(name, why, has_cosine);
  REQUIRE(found != nullptr);
  CHECK(has_cosine(found));
  void* const first = open_library(name, why, [](void* /*library*/) { return false; });
  CHECK(first != nullptr);
  CHECK(first != found);
}

TEST_CASE("a library that is nowhere is told in the loader's words") {
  std::string why;
  CHECK(open_library("libdtrain_that_is_nowhere.so.1", why) == nullptr);
  CHECK(why.find("libdtrain_that_is_nowhere.so.1: cannot open shared object file") !=
        std::string::npos);
}
