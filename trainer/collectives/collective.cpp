#include "trainer/collectives/collective.h"

#include <algorithm>

#include <fmt/format.h>

#include "trainer/errors.h"

namespace trainer {
namespace {

constexpr std::size_t k_values_together = 16; ///< Float32 values of a cache line.

/// "all_reduce"
const char* kind_name(Collective::Kind kind) {
  switch (kind) {
  case Collective::Kind::all_reduce:
    return "all_reduce";
  case Collective::Kind::reduce_scatter:
    return "reduce_scatter";
  case Collective::Kind::all_gather:
    return "all_gather";
  case Collective::Kind::broadcast:
    return "broadcast";
  case Collective::Kind::allocate:
    return "allocate";
  case Collective::Kind::gather:
    return "gather";
  case Collective::Kind::scatter:
    return "scatter";
  case Collective::Kind::barrier:
    break;
  }
  return "barrier";
}

} // namespace

const char* dtype_name(DType dtype) {
  switch (dtype) {
  case DType::f32:
    return "fp32";
  case DType::bf16:
    return "bf16";
  case DType::f16:
    return "fp16";
  case DType::f64:
    return "fp64";
  case DType::i32:
    return "int32";
  case DType::i16:
    return "int16";
  case DType::u8:
    break;
  }
  return "bytes";
}

std::string Collective::text() const {
  std::string text = kind_name(kind);
  if (kind != Kind::allocate) {
    text += fmt::format(" '{}'", name);
  }
  if (kind != Kind::barrier) {
    text += fmt::format(" of {} bytes", range.size_bytes());
  }
  if (range.dtype() != DType::f32 && range.dtype() != DType::u8) {
    text += fmt::format(" of {}", dtype_name(range.dtype()));
  }
  if (kind == Kind::broadcast) {
    text += fmt::format(" from rank {}", root);
  }
  if (wire != WireType::fp32) {
    text += fmt::format(" as {}", wire_type_name(wire));
  }
  return text;
}

Call Collective::call() const {
  return {kind_name(kind), wire_type_name(wire), range.size_bytes(), name, text()};
}

void check_types(const Collective& collective) {
  using Kind = Collective::Kind;
  const bool adds = collective.kind == Kind::all_reduce || collective.kind == Kind::reduce_scatter;
  const DType dtype = collective.range.dtype();
  if (adds && (dtype == DType::u8 || dtype == DType::i16 || dtype == DType::i32)) {
    throw Error(fmt::format(
        "{}: bytes cannot be summed, only gathered and broadcast; give the type of the values",
        collective.text()));
  }
  if (collective.wire != WireType::fp32 && collective.range.dtype() != DType::f32) {
    throw Error(fmt::format("{}: only float32 can be sent as another type", collective.text()));
  }
}

Chunks::Chunks(std::size_t count, int ranks, int pieces) : count_(count), number_(ranks) {
  const auto n = static_cast<std::size_t>(ranks) * static_cast<std::size_t>(pieces);
  const std::size_t share = (count + n - 1) / n;
  length_ = std::max<std::size_t>(1, (share + k_values_together - 1) / k_values_together) *
            k_values_together * static_cast<std::size_t>(pieces);
}

Chunks::Chunks(const Collective& collective, int ranks)
    : Chunks(collective.range.count(),
             collective.owners == nullptr ? ranks : static_cast<int>(collective.owners->size()),
             collective.pieces) {
  owners_ = collective.owners;
}

std::size_t Chunks::begin(int chunk) const {
  return std::min(count_, static_cast<std::size_t>(chunk) * length_);
}

std::vector<Chunks::Part> Chunks::owned_by(int position) const {
  std::vector<Part> parts;
  for (int chunk = 0; chunk < number_; ++chunk) {
    if (owner(chunk) != position || size(chunk) == 0) {
      continue;
    }
    if (!parts.empty() && parts.back().first + parts.back().count == begin(chunk)) {
      parts.back().count += size(chunk);
    } else {
      parts.push_back({begin(chunk), size(chunk)});
    }
  }
  return parts;
}

} // namespace trainer
