#include "trainer/checkpoint/checkpoint_writer.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "trainer/checkpoint/checkpoint_file.h"
#include "trainer/errors.h"

namespace trainer {
namespace {

std::map<std::string, std::string> metadata_of(const CheckpointHead& head, const TensorTable& table,
                                               const std::vector<std::string>& prefixes,
                                               bool is_part) {
  std::map<std::string, std::string> metadata = head.metadata;
  if (is_part) {
    metadata["tensors"] = describe_tensors(table, prefixes);
  }
  return metadata;
}

} // namespace

ArenaRange CheckpointWriter::Piece::held() const {
  const std::size_t end = held_floats(*tensor);
  return {std::min(range.first, end), std::min(range.last, end)};
}

std::vector<CheckpointWriter::Piece>
CheckpointWriter::pieces_of(const TensorTable& table, const std::vector<ArenaRange>& own) {
  std::vector<Piece> pieces;
  for (const ArenaRange& range : own) {
    for (std::size_t at = range.first; at < range.last;) {
      const Tensor& tensor = table.holder(at);
      const std::size_t last = std::min(range.last, tensor.range().last);
      pieces.push_back({&tensor, {at - tensor.offset, last - tensor.offset}});
      at = last;
    }
  }
  return pieces;
}

CheckpointWriter::CheckpointWriter(const std::string& folder, const CheckpointHead& head,
                                   const TensorTable& table,
                                   const std::vector<std::string>& prefixes,
                                   const std::vector<ArenaRange>& own,
                                   const std::optional<RankPart>& part)
    : step_(head.step), prefixes_(prefixes), pieces_(pieces_of(table, own)),
      is_part_(part.has_value()),
      file_(folder, step_, metadata_of(head, table, prefixes, is_part_), shapes(), part) {}

std::vector<TensorShape> CheckpointWriter::shapes() const {
  std::vector<TensorShape> shapes;
  for (const std::string& prefix : prefixes_) {
    for (const Piece& piece : pieces_) {
      const std::string name = prefix + piece.tensor->name;
      if (const ArenaRange held = piece.held(); !is_part_) {
        shapes.push_back({name, piece.tensor->shape});
      } else if (held.size() > 0) {
        shapes.push_back({range_name(name, held), {held.size()}});
      }
    }
  }
  return shapes;
}

void CheckpointWriter::add(std::span<const float> values) {
  while (!values.empty()) {
    const Piece& piece = pieces_[piece_];
    const auto some = values.first(std::min(values.size(), piece.range.size() - at_));
    if (!std::all_of(some.begin(), some.end(), [](float one) { return std::isfinite(one); })) {
      throw Error(fmt::format("step {}: {}{} holds what is no finite number, and no checkpoint is "
                              "written; try a smaller --learning-rate",
                              step_, prefixes_[arena_], piece.tensor->name));
    }
    write(piece, some);
    values = values.subspan(some.size());
    at_ += some.size();
    if (at_ == piece.range.size()) {
      at_ = 0;
      piece_ = (piece_ + 1) % pieces_.size();
      arena_ += piece_ == 0 ? 1 : 0;
    }
  }
}

void CheckpointWriter::write(const Piece& piece, std::span<const float> values) {
  const Tensor& tensor = *piece.tensor;
  if (is_part_ || tensor.layout == Layout::row_major) {
    const std::size_t held = piece.held().size();
    file_.write(values.first(std::min(values.size(), held - std::min(held, at_))));
    return;
  }
  if (values.size() < tensor.size) {
    held_.insert(held_.end(), values.begin(), values.end());
    if (held_.size() < tensor.size) {
      return;
    }
    values = held_;
  }
  constexpr std::size_t k_rows = 64; // At a time, so that they are in cache when they are written.
  const std::size_t columns = tensor.count() / tensor.shape[0];
  for (std::size_t row = 0; row < tensor.shape[0]; row += k_rows) {
    row_major_.resize(std::min(k_rows, tensor.shape[0] - row) * columns);
    tensor.read_rows(values, row, row_major_);
    file_.write(row_major_);
  }
  held_.clear();
}

} // namespace trainer
