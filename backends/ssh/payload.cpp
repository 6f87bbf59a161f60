#include "backends/ssh/payload.h"

#include "backends/support/code/code_archive.h"
#include "backends/support/os/digest.h"
#include "backends/support/os/files.h"
#include "backends/support/progress.h"
#include "submit/errors.h"

#include <fcntl.h>
#include <fmt/format.h>

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
constexpr std::array k_beside{"dtrain-mpi.so"}; ///< That the trainer loads, where there is one.
constexpr std::int64_t k_most_code = std::int64_t{1} << 30;

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

/// It stays what it is, though another be installed in its place.
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
  std::vector<std::pair<fs::path, std::string>> files{{trainer, k_trainer_file}};
  for (const auto* name : k_beside) {
    const auto beside = fs::path(trainer).parent_path() / name;
    if (fs::exists(beside)) {
      files.emplace_back(beside, name);
    }
  }
  Digest digest;
  for (const auto& [path, name] : files) {
    digest.add(name);
    digest_file(path, digest);
  }
  const auto bundle = digest.hex();
  const auto folder = payload_folder(job, true);
  const auto path = fs::path(job.path()) / k_folder / bundle;
  try {
    fs::create_directory(path);
    for (const auto& [from, name] : files) {
      keep(fs::canonical(from), path / name);
    }
  } catch (const fs::filesystem_error& error) {
    throw Error(fmt::format("cannot keep {}: {}", printable(trainer), error.code().message()));
  }
  write_file_at(folder.get(), k_bundle, bundle + "\n");
}

std::string pack_code(const JobFolder& job, const std::string& source, const SubmitSink& tell) {
  const auto code = pack_folder(source, k_most_code, as_step(SubmitStep::upload, tell));
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
