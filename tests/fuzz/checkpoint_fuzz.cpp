// Checkpoints in parts: whatever a manifest and the parts' headers say, they are read or refused
// with a DataError, and each tensor that is read has as many values as its shape.
//
// An input is the manifest, then each of two parts' headers, a zero byte between them. A part's
// data are as many zeros as its header asks for, up to a limit.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <numeric>
#include <string>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tests/unit/trainer/temp_folder.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/device/cpu/cpu_device.h"
#include "trainer/errors.h"

using namespace trainer;

namespace {

constexpr std::uint64_t k_most_data = 1 << 15;

/// Takes all up to the next zero byte.
std::string next(std::string_view& rest) {
  const std::string_view text = rest.substr(0, rest.find('\0'));
  rest.remove_prefix(std::min(rest.size(), text.size() + 1));
  return std::string(text);
}

std::uint64_t data_size(const std::string& header) {
  const auto parsed = nlohmann::json::parse(header, nullptr, false);
  std::uint64_t most = 0;
  for (const auto& entry : parsed.is_object() ? parsed : nlohmann::json::object()) {
    const auto offsets =
        entry.is_object() ? entry.value("data_offsets", nlohmann::json()) : nlohmann::json();
    if (offsets.is_array() && offsets.size() == 2 && offsets[1].is_number_unsigned()) {
      most = std::max(most, offsets[1].get<std::uint64_t>());
    }
  }
  return std::min(most, k_most_data);
}

void write_part(const std::string& path, const std::string& header) {
  const std::uint64_t length = header.size();
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(&length), sizeof length);
  file << header << std::string(data_size(header), '\0');
}

/// Of the run that the first inputs are of: 4 × 4 pixels, and 8 hidden values.
const Replica& replica() {
  static CpuDevice device(portable_kernels());
  static const Replica made({.height = 4, .width = 4, .hidden = {8}}, {}, device);
  return made;
}

void read_all(const std::string& path) {
  for (const NamedTensor& tensor : read_checkpoint(path).tensors) {
    if (tensor.values.size() != std::accumulate(tensor.shape.begin(), tensor.shape.end(),
                                                std::size_t{1}, std::multiplies<>())) {
      std::abort();
    }
  }
  CheckpointReader reader(path, replica(), {.seed = 1, .samples = 64});
  std::vector<float> arena(replica().parameters.size());
  for (std::size_t i = 0; i < reader.arenas(); ++i) {
    reader.read(i, {0, arena.size()}, arena);
  }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const TempFolder folder;
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  const std::string manifest = folder / "step-000000002.json";
  std::ofstream(manifest, std::ios::binary) << next(rest);
  for (int rank = 0; rank < 2; ++rank) {
    write_part(folder / fmt::format("step-000000002.rank-{:05}-of-00002.safetensors", rank),
               next(rest));
  }
  const auto try_each = [&](const auto& read) {
    try {
      read();
    } catch (const Error&) { // A DataError, or a UsageError where it is of another run.
      return;
    }
  };
  try_each([&] { newest_whole_checkpoint(folder.path(), [](const std::string& /*why*/) {}); });
  try_each([&] { read_all(manifest); });
  return 0;
}
