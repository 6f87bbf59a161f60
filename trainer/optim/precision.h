// Mixed precision: a model computes with parameters and gradients rounded to 16 bits, while the
// optimizer keeps parameters in float32. Rounded values are stored as float32, with which any CPU
// computes; activations stay float32, and products in bf16 round them as they multiply
// (device/cpu/bf16_products.h).
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "trainer/device/buffer.h"

namespace trainer {

enum class Precision : std::int64_t { fp32, bf16, fp16 };

/// "fp16" and "bf16"; anything else is fp32.
inline Precision parse_precision(const std::string& name) {
  return name == "fp16" ? Precision::fp16 : name == "bf16" ? Precision::bf16 : Precision::fp32;
}
inline const char* precision_name(Precision precision) {
  return precision == Precision::fp16 ? "fp16" : precision == Precision::bf16 ? "bf16" : "fp32";
}

/// The type of the 16 bits of bf16 or fp16.
inline DType half_type(Precision precision) {
  return precision == Precision::fp16 ? DType::f16 : DType::bf16;
}

/// Rounds values to 16 bits, infinite if too large; `to` may be `from`. Returns whether all results
/// are finite. Reads and writes 4 bytes per value.
bool round_to(Precision precision, std::span<const float> from, std::span<float> to);

} // namespace trainer
