// Mixed precision: a model computes with parameters in 16 bits and gives its gradients so, while
// the optimizer keeps its own in float32. The 16 bits are those of a float32 that has been rounded,
// which any CPU computes with; what a layer hands to the next stays float32, and a product of bf16
// rounds it as it multiplies (device/cpu/bf16_products.h).
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace trainer {

enum class Precision : std::int64_t { fp32, bf16, fp16 };

/// "fp16"; anything else than that and "bf16" is fp32.
inline Precision parse_precision(const std::string& name) {
  return name == "fp16" ? Precision::fp16 : name == "bf16" ? Precision::bf16 : Precision::fp32;
}
inline const char* precision_name(Precision precision) {
  return precision == Precision::fp16 ? "fp16" : precision == Precision::bf16 ? "bf16" : "fp32";
}

/// Each as it is in 16 bits, infinite where it is too large for them; `to` may be `from`. Returns
/// whether all are finite then. 4 bytes read and 4 written a value.
bool round_to(Precision precision, std::span<const float> from, std::span<float> to);

} // namespace trainer
