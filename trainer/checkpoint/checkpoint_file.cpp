#include "trainer/checkpoint/checkpoint_file.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "submit/errors.h"
#include "trainer/checkpoint/numbered_files.h"
#include "trainer/device/cpu/kernels.h"
#include "trainer/errors.h"

namespace trainer {
namespace {

using nlohmann::json;

constexpr Layout k_layouts[] = {Layout::row_major, Layout::panels, Layout::turned};

std::string layout_name(Layout layout) {
  return layout == Layout::row_major ? "row-major"
         : layout == Layout::turned  ? "turned"
                                     : fmt::format("panels of {}", k_panel);
}

[[noreturn]] void refuse_parts(const std::string& path, const std::string& what) {
  throw DataError(fmt::format("{}: damaged: {}", path, what));
}

/// Throws json::exception where it says something else.
Tensor parse_tensor(const std::string& path, const json& said) {
  constexpr std::size_t k_most = std::size_t{1} << 48; // Values, against overflow.
  const auto name = said.at("name").get<std::string>();
  const auto layout = said.at("layout").get<std::string>();
  const json& sizes = said.at("shape");
  std::vector<std::size_t> shape;
  if (!sizes.is_array()) { // A loop over a number sees that number.
    refuse_parts(path, fmt::format("the shape of {}", dtrain::printable(name)));
  }
  for (const json& size : sizes) {
    if (!size.is_number_unsigned()) {
      refuse_parts(path, fmt::format("the shape of {}", dtrain::printable(name)));
    }
    shape.push_back(size.get<std::size_t>());
  }
  const auto* const known = std::find_if(std::begin(k_layouts), std::end(k_layouts),
                                         [&](Layout one) { return layout_name(one) == layout; });
  if (known == std::end(k_layouts)) {
    throw DataError(fmt::format("{}: {} is laid out as {}, which is not read here", path,
                                dtrain::printable(name), dtrain::printable(layout)));
  }
  std::size_t count = 1;
  for (const std::size_t size : shape) {
    count = size == 0 || size > k_most / count ? k_most + 1 : count * size;
    if (count > k_most) {
      refuse_parts(path, fmt::format("the shape of {}", dtrain::printable(name)));
    }
  }
  if (shape.size() < (*known == Layout::row_major ? 0 : 2)) {
    refuse_parts(path, fmt::format("the shape of {}", dtrain::printable(name)));
  }
  TensorTable table;
  table.add(name, shape, *known);
  return table[0];
}

/// The other way of range_name(): false where it is none.
bool parse_range(const std::string& text, std::string& tensor, ArenaRange& range) {
  const std::size_t begin = std::min(text.rfind('['), text.size());
  tensor = text.substr(0, begin);
  const char* const end = text.data() + text.size();
  const auto first =
      std::from_chars(text.data() + std::min(begin + 1, text.size()), end, range.first);
  if (first.ec != std::errc() || first.ptr == end || *first.ptr != ':') {
    return false;
  }
  const auto last = std::from_chars(first.ptr + 1, end, range.last);
  return last.ec == std::errc() && std::string_view(last.ptr, end) == "]" &&
         range.first < range.last;
}

} // namespace

std::string describe_tensors(const TensorTable& table, const std::vector<std::string>& prefixes) {
  json all = json::array();
  for (const std::string& prefix : prefixes) {
    for (const Tensor& tensor : table.tensors()) {
      all.push_back({{"name", prefix + tensor.name},
                     {"shape", tensor.shape},
                     {"layout", layout_name(tensor.layout)}});
    }
  }
  return all.dump();
}

std::string range_name(const std::string& tensor, const ArenaRange& range) {
  return fmt::format("{}[{}:{}]", tensor, range.first, range.last);
}

CheckpointFile::CheckpointFile(const std::string& path) : path_(path) {
  const std::vector<std::string> files = files_of(path);
  for (const std::string& file : files) {
    files_.push_back(std::make_unique<SafeTensorsFile>(file));
  }
  files.front() == path ? add_whole() : add_parts();
}

void CheckpointFile::add(Entry entry) {
  numbers_[entry.tensor.name] = entries_.size();
  entries_.push_back(std::move(entry));
}

void CheckpointFile::add_whole() {
  const SafeTensorsFile& file = *files_.front();
  for (const StoredTensor& stored : file.tensors()) {
    Tensor tensor{stored.name, stored.shape};
    tensor.size = stored.count();
    add({tensor, {{tensor.range(), &file, &stored}}});
  }
}

void CheckpointFile::add_parts() {
  const auto said = metadata().find("tensors");
  try {
    for (const json& tensor : json::parse(said == metadata().end() ? "" : said->second)) {
      add({parse_tensor(path_, tensor)});
    }
  } catch (const json::exception&) {
    refuse_parts(path_, "its parts do not say which tensors they are of");
  }
  for (const auto& file : files_) {
    for (const StoredTensor& stored : file->tensors()) {
      std::string name;
      ArenaRange range;
      const bool is_range = parse_range(stored.name, name, range);
      const auto number = numbers_.find(name);
      if (!is_range || number == numbers_.end() || range.size() != stored.count()) {
        refuse_parts(path_, fmt::format("{} in {}", dtrain::printable(stored.name), file->path()));
      }
      entries_[number->second].pieces.push_back({range, file.get(), &stored});
    }
  }
  for (Entry& entry : entries_) {
    std::sort(entry.pieces.begin(), entry.pieces.end(),
              [](const Piece& a, const Piece& b) { return a.range.first < b.range.first; });
    std::size_t at = 0;
    for (const Piece& piece : entry.pieces) {
      at = piece.range.first == at ? piece.range.last : SIZE_MAX;
    }
    if (at != held_floats(entry.tensor)) {
      refuse_parts(path_, fmt::format("its parts do not hold each value of {} once",
                                      dtrain::printable(entry.tensor.name)));
    }
  }
}

const CheckpointFile::Entry* CheckpointFile::find(const std::string& name) const {
  const auto found = numbers_.find(name);
  return found == numbers_.end() ? nullptr : &entries_[found->second];
}

void CheckpointFile::read(const Entry& entry, std::size_t first, std::span<float> to) const {
  for (const auto& [range, file, stored] : entry.pieces) {
    const std::size_t begin = std::max(first, range.first);
    const std::size_t end = std::min(first + to.size(), range.last);
    if (begin < end) {
      file->read(*stored, begin - range.first, to.subspan(begin - first, end - begin));
    }
  }
}

std::vector<float> CheckpointFile::values(const Entry& entry) const {
  std::vector<float> held(held_floats(entry.tensor));
  read(entry, 0, held);
  if (entry.tensor.layout == Layout::row_major) {
    return held;
  }
  std::vector<float> values(entry.tensor.count());
  entry.tensor.read(held, values);
  return values;
}

void check_is_known(const std::string& path, std::string_view name, const TensorTable& table,
                    const std::vector<std::string>& prefixes) {
  const bool is_known =
      std::any_of(prefixes.begin(), prefixes.end(), [&](const std::string& prefix) {
        return name.starts_with(prefix) &&
               std::any_of(table.tensors().begin(), table.tensors().end(), [&](const Tensor& own) {
                 return own.name == name.substr(prefix.size());
               });
      });
  if (!is_known) {
    throw DataError(
        fmt::format("{}: has a tensor {}, which neither the model nor its optimizer has", path,
                    dtrain::printable(name)));
  }
}

SafeTensors read_checkpoint(const std::string& path) {
  const CheckpointFile file(path);
  SafeTensors content{file.metadata(), {}};
  for (const CheckpointFile::Entry& entry : file.entries()) {
    content.tensors.push_back({entry.tensor.name, entry.tensor.shape, file.values(entry)});
  }
  return content;
}

} // namespace trainer
