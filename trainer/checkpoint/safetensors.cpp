#include "trainer/checkpoint/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <numeric>
#include <optional>
#include <set>

#include "submit/errors.h"
#include "trainer/device/halves.h"
#include "trainer/errors.h"
#include "trainer/files.h"
#include "trainer/json_file.h"

namespace trainer {

/// How a value is stored in the data.
struct ValueType {
  const char* name;
  std::size_t bytes;
  float (*read)(const std::byte* from);
};

namespace {

using nlohmann::json;

static_assert(std::endian::native == std::endian::little, "values are copied as they lie");

constexpr std::size_t k_length_size = 8;
constexpr std::uint64_t k_max_header = 100'000'000;
constexpr std::size_t k_alignment = 8;
constexpr const char* k_metadata = "__metadata__";

template <typename Value>
Value value_at(const std::byte* from) {
  Value value{};
  std::memcpy(&value, from, sizeof value);
  return value;
}

constexpr ValueType k_value_types[] = {
    {"F32", 4, value_at<float>},
    {"F16", 2, [](const std::byte* from) { return Fp16::widen(value_at<std::uint16_t>(from)); }},
    {"BF16", 2, [](const std::byte* from) { return Bf16::widen(value_at<std::uint16_t>(from)); }},
    {"I64", 8,
     [](const std::byte* from) { return static_cast<float>(value_at<std::int64_t>(from)); }}};

[[noreturn]] void damaged(const std::string& name, const std::string& what) {
  throw DataError(fmt::format("{}: damaged: {}", name, what));
}

json parse_json(const std::string& name, std::string_view text) {
  std::set<std::string> seen;
  const auto check = [&](int depth, json::parse_event_t event, json& parsed) {
    if (static_cast<std::size_t>(depth) > k_deepest_json) {
      damaged(name, fmt::format("the header is nested more than {} deep", k_deepest_json));
    }
    if (event == json::parse_event_t::key && depth == 1 &&
        !seen.insert(parsed.get<std::string>()).second) {
      damaged(name, fmt::format("{} occurs twice", dtrain::printable(parsed.get<std::string>())));
    }
    return true;
  };
  try {
    json header = json::parse(text, check);
    if (!header.is_object()) {
      damaged(name, "the header is no JSON object");
    }
    return header;
  } catch (const json::exception&) {
    damaged(name, "the header is not JSON");
  }
}

/// Its place is counted from the data's beginning.
StoredTensor parse_tensor(const std::string& name, const std::string& tensor, const json& entry) {
  const std::string key = dtrain::printable(tensor);
  try {
    const auto* const type =
        std::find_if(std::begin(k_value_types), std::end(k_value_types),
                     [&](const ValueType& one) { return entry.at("dtype") == one.name; });
    if (type == std::end(k_value_types)) {
      throw DataError(fmt::format("{}: {} is of type {}; F32, F16, BF16 and I64 are read", name,
                                  key, entry.at("dtype").dump()));
    }
    StoredTensor stored{tensor, {}, type, 0, 0};
    std::uint64_t count = 1;
    const json& shape = entry.at("shape");
    if (!shape.is_array()) { // A loop over a number sees that number.
      damaged(name, fmt::format("shape of {}", key));
    }
    for (const json& dimension : shape) {
      if (!dimension.is_number_unsigned()) {
        damaged(name, fmt::format("shape of {}", key));
      }
      const auto value = dimension.get<std::uint64_t>();
      if (value != 0 && count > UINT64_MAX / type->bytes / value) {
        damaged(name, fmt::format("shape of {} is too large", key));
      }
      count *= value;
      stored.shape.push_back(value);
    }
    const json& offsets = entry.at("data_offsets");
    if (!offsets.is_array() || offsets.size() != 2 || !offsets[0].is_number_unsigned() ||
        !offsets[1].is_number_unsigned()) {
      damaged(name, fmt::format("data_offsets of {}", key));
    }
    stored.first = offsets[0].get<std::uint64_t>();
    stored.last = offsets[1].get<std::uint64_t>();
    if (stored.last < stored.first || stored.last - stored.first != count * type->bytes) {
      damaged(name, fmt::format("data_offsets of {} do not fit its shape", key));
    }
    return stored;
  } catch (const json::exception&) {
    damaged(name, fmt::format("the entry of {}", key));
  }
}

std::size_t values_of(const std::vector<std::size_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::size_t{1}, std::multiplies<>());
}

/// A file's header.
struct Header {
  std::map<std::string, std::string> metadata;
  std::vector<StoredTensor> tensors; ///< In the file's order.
};

/// Its length. `size`: the file's.
std::uint64_t header_size(const std::string& name, std::span<const std::byte> beginning,
                          std::uint64_t size) {
  if (size < k_length_size) {
    damaged(name, fmt::format("{} bytes are too few for a checkpoint", size));
  }
  std::uint64_t length = 0;
  std::memcpy(&length, beginning.data(), k_length_size);
  if (length > k_max_header || length > size - k_length_size) {
    damaged(name, fmt::format("a header of {} bytes in a file of {}", length, size));
  }
  return length;
}

/// `size`: the file's.
Header parse_header(const std::string& name, std::string_view text, std::uint64_t size) {
  if (!text.starts_with('{')) {
    damaged(name, "the header is no JSON object");
  }
  const std::uint64_t data = k_length_size + text.size();
  const json header = parse_json(name, text);
  Header found;
  for (const auto& [key, entry] : header.items()) {
    if (key != k_metadata) {
      found.tensors.push_back(parse_tensor(name, key, entry));
      continue;
    }
    for (const auto& [metadata_key, value] : entry.items()) {
      if (!value.is_string()) {
        damaged(name, "metadata that is no text");
      }
      found.metadata[metadata_key] = value.get<std::string>();
    }
  }
  std::sort(found.tensors.begin(), found.tensors.end(),
            [](const StoredTensor& a, const StoredTensor& b) {
              return std::pair(a.first, a.last) < std::pair(b.first, b.last);
            });
  std::uint64_t expected = 0;
  for (StoredTensor& tensor : found.tensors) {
    if (tensor.first != expected) {
      damaged(name, fmt::format("{} begins at {} where {} was expected",
                                dtrain::printable(tensor.name), tensor.first, expected));
    }
    expected = tensor.last;
    tensor.first += data;
    tensor.last += data;
  }
  if (expected != size - data) {
    damaged(name, fmt::format("{} bytes of data where the header says {}", size - data, expected));
  }
  return found;
}

/// Converts stored values to float32.
void convert(const ValueType& type, const std::byte* from, std::span<float> to) {
  for (float& value : to) {
    value = type.read(from);
    from += type.bytes;
  }
}

} // namespace

std::size_t StoredTensor::count() const { return (last - first) / type->bytes; }

SafeTensors parse_safetensors(std::span<const std::byte> file, const std::string& name) {
  const std::uint64_t length = header_size(name, file, file.size());
  Header header = parse_header(
      name, {reinterpret_cast<const char*>(file.data()) + k_length_size, length}, file.size());
  SafeTensors content{std::move(header.metadata), {}};
  for (StoredTensor& stored : header.tensors) {
    std::vector<float> values(stored.count());
    convert(*stored.type, file.data() + stored.first, values);
    content.tensors.push_back({std::move(stored.name), std::move(stored.shape), std::move(values)});
  }
  return content;
}

SafeTensorsFile::SafeTensorsFile(const std::string& path) try : file_(path) {
  std::array<std::byte, k_length_size> beginning{};
  file_.read(0, std::span(beginning).first(std::min(k_length_size, file_.size())));
  std::string text(header_size(path, beginning, file_.size()), '\0');
  file_.read(k_length_size, std::as_writable_bytes(std::span(text)));
  Header header = parse_header(path, text, file_.size());
  metadata_ = std::move(header.metadata);
  tensors_ = std::move(header.tensors);
} catch (const DataError&) {
  throw;
} catch (const Error& error) {
  throw DataError(error.what());
}

void SafeTensorsFile::read(const StoredTensor& tensor, std::size_t first,
                           std::span<float> to) const {
  const std::uint64_t at = tensor.first + first * tensor.type->bytes;
  try {
    if (tensor.type == k_value_types) {
      file_.read(at, std::as_writable_bytes(to));
      return;
    }
    std::vector<std::byte> bytes(to.size() * tensor.type->bytes);
    file_.read(at, bytes);
    convert(*tensor.type, bytes.data(), to);
  } catch (const Error& error) {
    throw DataError(error.what());
  }
}

SafeTensors read_safetensors(const std::string& path) {
  const SafeTensorsFile file(path);
  SafeTensors content{file.metadata(), {}};
  for (const StoredTensor& stored : file.tensors()) {
    NamedTensor& tensor = content.tensors.emplace_back(
        NamedTensor{stored.name, stored.shape, std::vector<float>(stored.count())});
    file.read(stored, 0, tensor.values);
  }
  return content;
}

SafeTensorsWriter::SafeTensorsWriter(const std::string& path,
                                     const std::map<std::string, std::string>& metadata,
                                     std::span<const TensorShape> tensors)
    : file_(path) {
  json header;
  header[k_metadata] = metadata;
  std::uint64_t offset = 0;
  for (const TensorShape& tensor : tensors) {
    const std::uint64_t size = values_of(tensor.shape) * sizeof(float);
    header[tensor.name] = {
        {"dtype", "F32"}, {"shape", tensor.shape}, {"data_offsets", {offset, offset + size}}};
    offset += size;
  }
  std::string text = header.dump();
  text.resize((text.size() + k_alignment - 1) / k_alignment * k_alignment, ' ');
  const std::uint64_t length = text.size();
  write(std::as_bytes(std::span(&length, 1)));
  write(std::as_bytes(std::span(text)));
}

void SafeTensorsWriter::write(std::span<const std::byte> bytes) {
  file_.write(bytes);
  digest_.add({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()});
  bytes_ += bytes.size();
}

void write_safetensors(const std::string& path, const std::map<std::string, std::string>& metadata,
                       std::span<const NamedTensor> tensors) {
  std::vector<TensorShape> shapes;
  for (const NamedTensor& tensor : tensors) {
    shapes.push_back({tensor.name, tensor.shape});
  }
  SafeTensorsWriter file(path, metadata, shapes);
  for (const NamedTensor& tensor : tensors) {
    file.write(tensor.values);
  }
  file.commit();
}

} // namespace trainer
