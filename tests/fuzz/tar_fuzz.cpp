// A rank's machine may send anything for an archive: it is read or refused, no name in it leads out
// of the folder that it is unpacked in, no file is longer than it says, and an error's text is one
// line.
#include "backends/support/files/tar_reader.h"
#include "submit/errors.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>

namespace {

constexpr std::size_t k_block = 512;

void check_path(const std::string& path) {
  for (const auto& part : std::filesystem::path(path)) {
    if (part == ".." || part == "." || part == "/") {
      std::abort();
    }
  }
}

void read(const std::string& archive) {
  std::int64_t left = 0;
  dtrain::TarReader reader(
      [&](const dtrain::TarEntry& entry) {
        check_path(entry.path);
        if (entry.kind == dtrain::TarEntry::Kind::hard_link) {
          check_path(entry.target);
        }
        left = entry.kind == dtrain::TarEntry::Kind::file ? entry.size : 0;
      },
      [&](std::string_view bytes) {
        left -= static_cast<std::int64_t>(bytes.size());
        if (left < 0) {
          std::abort();
        }
      });
  try {
    for (std::size_t at = 0; at < archive.size(); at += 700) {
      reader.add(std::string_view(archive).substr(at, 700));
    }
  } catch (const dtrain::Error& error) {
    if (std::string(error.what()).find('\n') != std::string::npos) {
      std::abort();
    }
  }
}

/// With the sum of each block in it, which chance would hardly find.
std::string with_sums(std::string archive) {
  constexpr std::size_t k_sum_at = 148;
  archive.resize((archive.size() + k_block - 1) / k_block * k_block);
  for (std::size_t at = 0; at < archive.size(); at += k_block) {
    archive.replace(at + k_sum_at, 8, 8, ' ');
    unsigned sum = 0;
    for (std::size_t i = at; i < at + k_block; ++i) {
      sum += static_cast<unsigned char>(archive[i]);
    }
    archive.replace(at + k_sum_at, 7, fmt::format("{:06o}", sum) + '\0');
  }
  return archive;
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  read(text);
  read(with_sums(text));
  return 0;
}
