#include "backends/ssh/payload.h"

#include "backends/support/code/code_archive.h"
#include "backends/support/os/digest.h"
#include "backends/support/os/files.h"
#include "backends/support/progress.h"
#include "submit/errors.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <gnu/libc-version.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

namespace dtrain::ssh {

namespace {

namespace fs = std::filesystem;

constexpr const char* k_folder = "payload";
constexpr const char* k_bundle = "bundle";
constexpr const char* k_parts = "parts";
constexpr std::array k_plugins{"dtrain-mpi.so", "libdtrain_cuda.so"}; ///< If present.
constexpr const char* k_launcher_file = "dtrain-launcher";
/// The libraries of this machine's glibc that the trainer and the host's libraries may need, and
/// those of GCC that plug-ins need (cmake/portable/make).
constexpr std::array k_libraries{
#include "cmake/portable/libraries"
};
constexpr const char* k_loader = k_libraries.front();

Fd payload_folder(const JobFolder& job, bool create) {
  return open_private_folder_at(job.fd(), k_folder, job.path() + "/" + k_folder, create);
}

void digest_file(const fs::path& path, Digest& digest) {
  std::ifstream file(path, std::ios::binary);
  std::vector<char> block(std::size_t{1} << 20U);
  while (file) {
    file.read(block.data(), static_cast<std::streamsize>(block.size()));
    digest.add({block.data(), static_cast<std::size_t>(file.gcount())});
  }
  if (!file.eof()) {
    throw Error(fmt::format("cannot read {}", printable(path.string())));
  }
}

/// The folder of this machine's glibc.
fs::path glibc_folder() {
  Dl_info info{};
  // The loader keeps the name that it found the library by.
  return dladdr(reinterpret_cast<void*>(&gnu_get_libc_version), &info) != 0
             ? fs::path(info.dli_fname).parent_path()
             : fs::path();
}

/// The files of a bundle: path here, and path on the host.
using BundleFiles = std::vector<std::pair<fs::path, fs::path>>;

/// As in the tarball (cmake/portable): the launcher, which starts the program with the bundled
/// glibc if the host's own is older. Without a launcher, the program itself.
BundleFiles files_of_bundle(const fs::path& trainer) {
  const auto folder = trainer.parent_path();
  const auto lib = folder.parent_path() / "lib/dtrain";
  BundleFiles files;
  for (const auto* name : k_plugins) {
    if (fs::exists(folder / name)) {
      files.emplace_back(folder / name, fs::path("bin") / name);
    }
  }
  auto launcher = trainer;
  auto program = lib / "dtrain-trainer";
  auto libraries = lib;
  if (!fs::exists(program)) { // Not from the tarball.
    launcher = (fs::exists(folder / k_launcher_file) ? folder : lib) / k_launcher_file;
    program = trainer;
    libraries = glibc_folder();
  }
  if (!fs::exists(launcher) || !fs::exists(libraries / k_loader)) {
    files.emplace_back(trainer, k_trainer_file);
    return files;
  }
  files.emplace_back(launcher, k_trainer_file);
  files.emplace_back(program, "lib/dtrain/dtrain-trainer");
  for (const auto* name : k_libraries) {
    if (fs::exists(libraries / name)) { // Some glibc versions have them apart, others in libc.
      files.emplace_back(libraries / name, fs::path("lib/dtrain") / name);
    }
  }
  return files;
}

/// Keeps the file as it is now, even if another version is installed later.
void keep(const fs::path& file, const fs::path& as) {
  std::error_code error;
  fs::create_hard_link(file, as, error);
  if (error) {
    fs::copy_file(file, as);
  }
}

std::vector<std::string> lines_of(int folder, const char* name) {
  std::istringstream text(read_file_at(folder, name).value_or(""));
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);) {
    lines.push_back(line);
  }
  return lines;
}

} // namespace

void pack_trainer(const JobFolder& job, const std::string& trainer) {
  try {
    const auto files = files_of_bundle(fs::canonical(trainer));
    Digest digest;
    for (const auto& [file, name] : files) {
      digest.add(name.string());
      digest_file(file, digest);
    }
    const auto bundle = digest.hex();
    const auto folder = payload_folder(job, true);
    const auto path = fs::path(job.path()) / k_folder / bundle;
    for (const auto& [file, name] : files) {
      fs::create_directories((path / name).parent_path());
      keep(fs::canonical(file), path / name);
    }
    write_file_at(folder.get(), k_bundle, bundle + "\n");
  } catch (const fs::filesystem_error& error) {
    throw Error(fmt::format("cannot keep {}: {}", printable(trainer), error.code().message()));
  }
}

std::string pack_code(const JobFolder& job, const std::string& source, const SubmitSink& tell) {
  const auto code = pack_folder(source, k_most_packed_bytes, as_step(SubmitStep::upload, tell));
  const auto folder = payload_folder(job, true);
  std::string parts;
  for (const auto& part : code.parts) {
    write_file_at(folder.get(), part.digest, part.gzip);
    parts += part.digest + "\n";
  }
  write_file_at(folder.get(), k_parts, parts);
  return code.text();
}

Payload open_payload(int job_folder) {
  Payload payload;
  payload.folder = Fd(openat(job_folder, k_folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (payload.folder) {
    for (const auto& digest : lines_of(payload.folder.get(), k_bundle)) {
      payload.bundle = digest;
    }
    payload.parts = lines_of(payload.folder.get(), k_parts);
  }
  return payload;
}

} // namespace dtrain::ssh
