#include "trainer/checkpoint/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <set>

#include "submit/errors.h"
#include "trainer/errors.h"
#include "trainer/files.h"

namespace trainer {
namespace {

using nlohmann::json;

static_assert(std::endian::native == std::endian::little, "values are copied as they lie");

constexpr std::size_t k_length_size = 8;
constexpr std::uint64_t k_max_header = 100'000'000;
constexpr std::size_t k_alignment = 8;
constexpr const char* k_metadata = "__metadata__";

/// Where a tensor lies in the data.
struct Extent {
  std::uint64_t first;
  std::uint64_t last;
  NamedTensor tensor;
};

[[noreturn]] void damaged(const std::string& name, const std::string& what) {
  throw DataError(fmt::format("{}: damaged: {}", name, what));
}

json parse_header(const std::string& name, std::string_view text) {
  std::set<std::string> seen;
  const auto refuse_duplicates = [&](int depth, json::parse_event_t event, json& parsed) {
    if (event == json::parse_event_t::key && depth == 1 &&
        !seen.insert(parsed.get<std::string>()).second) {
      damaged(name, fmt::format("{} occurs twice", dtrain::printable(parsed.get<std::string>())));
    }
    return true;
  };
  try {
    json header = json::parse(text, refuse_duplicates);
    if (!header.is_object()) {
      damaged(name, "the header is no JSON object");
    }
    return header;
  } catch (const json::exception&) {
    damaged(name, "the header is not JSON");
  }
}

Extent parse_extent(const std::string& name, const std::string& tensor, const json& entry) {
  const std::string key = dtrain::printable(tensor);
  try {
    if (entry.at("dtype") != "F32") {
      throw DataError(fmt::format("{}: {} is of type {}, only F32 is read", name, key,
                                  entry.at("dtype").dump()));
    }
    Extent extent{0, 0, {tensor, {}, {}}};
    std::uint64_t count = 1;
    for (const json& dimension : entry.at("shape")) {
      if (!dimension.is_number_unsigned()) {
        damaged(name, fmt::format("shape of {}", key));
      }
      const auto value = dimension.get<std::uint64_t>();
      if (value != 0 && count > UINT64_MAX / sizeof(float) / value) {
        damaged(name, fmt::format("shape of {} is too large", key));
      }
      count *= value;
      extent.tensor.shape.push_back(value);
    }
    const json& offsets = entry.at("data_offsets");
    if (!offsets.is_array() || offsets.size() != 2 || !offsets[0].is_number_unsigned() ||
        !offsets[1].is_number_unsigned()) {
      damaged(name, fmt::format("data_offsets of {}", key));
    }
    extent.first = offsets[0].get<std::uint64_t>();
    extent.last = offsets[1].get<std::uint64_t>();
    if (extent.last < extent.first || extent.last - extent.first != count * sizeof(float)) {
      damaged(name, fmt::format("data_offsets of {} do not fit its shape", key));
    }
    return extent;
  } catch (const json::exception&) {
    damaged(name, fmt::format("the entry of {}", key));
  }
}

} // namespace

SafeTensors parse_safetensors(std::span<const std::byte> file, const std::string& name) {
  if (file.size() < k_length_size) {
    damaged(name, fmt::format("{} bytes are too few for a checkpoint", file.size()));
  }
  std::uint64_t header_size = 0;
  std::memcpy(&header_size, file.data(), k_length_size);
  if (header_size > k_max_header || header_size > file.size() - k_length_size) {
    damaged(name, fmt::format("a header of {} bytes in a file of {}", header_size, file.size()));
  }
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + k_length_size,
                              header_size);
  if (!text.starts_with('{')) {
    damaged(name, "the header is no JSON object");
  }
  const json header = parse_header(name, text);
  const auto data = file.subspan(k_length_size + header_size);
  SafeTensors content;
  std::vector<Extent> extents;
  for (const auto& [key, entry] : header.items()) {
    if (key != k_metadata) {
      extents.push_back(parse_extent(name, key, entry));
      continue;
    }
    for (const auto& [metadata_key, value] : entry.items()) {
      if (!value.is_string()) {
        damaged(name, "metadata that is no text");
      }
      content.metadata[metadata_key] = value.get<std::string>();
    }
  }
  std::sort(extents.begin(), extents.end(), [](const Extent& a, const Extent& b) {
    return std::pair(a.first, a.last) < std::pair(b.first, b.last);
  });
  std::uint64_t expected = 0;
  for (const Extent& extent : extents) {
    if (extent.first != expected) {
      damaged(name, fmt::format("{} begins at {} where {} was expected",
                                dtrain::printable(extent.tensor.name), extent.first, expected));
    }
    expected = extent.last;
  }
  if (expected != data.size()) {
    damaged(name, fmt::format("{} bytes of data where the header says {}", data.size(), expected));
  }
  for (Extent& extent : extents) {
    extent.tensor.values.resize((extent.last - extent.first) / sizeof(float));
    if (!extent.tensor.values.empty()) {
      std::memcpy(extent.tensor.values.data(), data.data() + extent.first,
                  extent.last - extent.first);
    }
    content.tensors.push_back(std::move(extent.tensor));
  }
  return content;
}

SafeTensors read_safetensors(const std::string& path) {
  std::optional<MappedFile> file;
  try {
    file.emplace(path);
  } catch (const Error& error) {
    throw DataError(error.what());
  }
  return parse_safetensors(file->bytes(), path);
}

void write_safetensors(const std::string& path, const std::map<std::string, std::string>& metadata,
                       std::span<const TensorSource> tensors) {
  json header;
  header[k_metadata] = metadata;
  std::vector<std::size_t> counts;
  std::uint64_t offset = 0;
  for (const TensorSource& tensor : tensors) {
    counts.push_back(std::accumulate(tensor.shape.begin(), tensor.shape.end(), std::size_t{1},
                                     std::multiplies<>()));
    const std::uint64_t size = counts.back() * sizeof(float);
    header[tensor.name] = {
        {"dtype", "F32"}, {"shape", tensor.shape}, {"data_offsets", {offset, offset + size}}};
    offset += size;
  }
  std::string text = header.dump();
  text.resize((text.size() + k_alignment - 1) / k_alignment * k_alignment, ' ');
  const std::uint64_t length = text.size();
  AtomicFile file(path);
  file.write(std::as_bytes(std::span(&length, 1)));
  file.write(std::as_bytes(std::span(text)));
  std::vector<float> values;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    values.resize(counts[i]);
    tensors[i].read(values);
    file.write(std::as_bytes(std::span(values)));
  }
  file.commit();
}

} // namespace trainer
