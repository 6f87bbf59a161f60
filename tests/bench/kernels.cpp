// How fast a GPU's kernels are, as JSON: GB/s of those over flat ranges, and of a copy beside them,
// which is as fast as its memory; TFLOP/s of products, and milliseconds of attention. bench-kernels
#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "trainer/clock.h"
#include "trainer/device/device.h"

namespace {

using trainer::AttentionShape;
using trainer::Buffer;
using trainer::DType;
using trainer::Matmul;

constexpr std::size_t k_values = std::size_t{1} << 27; ///< 0.5 GiB, ten times what its caches hold.
constexpr int k_rounds = 5;
constexpr int k_puts = 10; ///< A round.

class Measured {
 public:
  explicit Measured(trainer::Device& device) : device_(device) {}

  /// Seconds of one, in the fastest round.
  double seconds(const std::function<void()>& put) const {
    put();
    double best = std::numeric_limits<double>::max();
    for (int round = 0; round < k_rounds; ++round) {
      device_.stream().record()->wait();
      const double begin = trainer::now();
      for (int i = 0; i < k_puts; ++i) {
        put();
      }
      device_.stream().record()->wait();
      best = std::min(best, (trainer::now() - begin) / k_puts);
    }
    return best;
  }
  void print(const std::string& what, const char* unit, double value) {
    fmt::print("{}\"{}, {}\": {:.5g}", is_first_ ? "{" : ", ", what, unit, value);
    is_first_ = false;
  }

 private:
  trainer::Device& device_;
  bool is_first_ = true;
};

void flat(trainer::Device& device, Measured& measured) {
  constexpr double k_giga = 1e9;
  const trainer::Kernels& kernels = device.kernels();
  trainer::Stream& stream = device.stream();
  std::vector<Buffer> memory;
  for (int i = 0; i < 4; ++i) {
    memory.push_back(device.allocate(k_values, DType::f32));
  }
  float* const g = memory[0].data();
  float* const m = memory[1].data();
  float* const v = memory[2].data();
  float* const p = memory[3].data();
  const Buffer state_memory = device.allocate(sizeof(trainer::StepState), DType::u8);
  auto* const state = static_cast<trainer::StepState*>(state_memory.memory());
  const Buffer sum = device.allocate(sizeof(trainer::SquareSum), DType::u8);
  const trainer::UpdateRule rule;
  kernels.begin(stream, {}, {}, state, nullptr);
  const auto rate = [&](const char* what, std::size_t bytes, const std::function<void()>& put) {
    measured.print(what, "GB/s",
                   static_cast<double>(bytes * k_values) / measured.seconds(put) / k_giga);
  };
  rate("copy", 8, [&] { stream.copy(g, m, k_values * sizeof(float)); });
  rate("adam", 28, [&] { kernels.adam(stream, k_values, rule, state, g, m, v, p); });
  rate("sgd", 20, [&] { kernels.sgd(stream, k_values, rule, state, g, m, p); });
  rate("lamb", 48, [&] {
    kernels.lamb_direction(stream, k_values, rule, state, g, m, v, g, p);
    kernels.lamb_take(stream, k_values, state, g, p);
  });
  rate("squares", 4, [&] {
    kernels.squares(stream, k_values, g, 0, static_cast<trainer::SquareSum*>(sum.memory()));
  });
  rate("blend", 12, [&] { kernels.blend(stream, k_values, 0.5F, g, 0.5F, p); });
  rate("bytes_to_floats", 5, [&] {
    kernels.bytes_to_floats(stream, k_values, static_cast<const std::uint8_t*>(memory[0].memory()),
                            p);
  });
  rate("narrow", 6, [&] { kernels.narrow(stream, k_values, DType::bf16, g, p); });
  rate("widen", 6, [&] { kernels.widen(stream, k_values, DType::bf16, g, p); });
  rate("drop_and_add", 12, [&] { kernels.text->drop_and_add(stream, {1, k_values}, {}, g, p); });
  constexpr std::size_t k_width = 1024;
  const trainer::NormShape shape{k_values / k_width, k_width, 1e-5F};
  const Buffer moments = device.allocate(2 * shape.rows, DType::f32);
  rate("add_and_norm", 16,
       [&] { kernels.text->add_and_norm(stream, shape, {}, g, p, m, v, p, moments.data()); });
  rate("norm", 8, [&] { kernels.text->norm(stream, shape, g, m, v, p, moments.data()); });
  rate("norm_backward", 12, [&] {
    kernels.text->norm_backward(stream, shape, g, moments.data(), m, false, p, {}, m, v);
  });
  rate("gelu_backward", 12, [&] { kernels.text->gelu_backward(stream, k_values, g, p); });
}

/// GPT-2's, of 8 × 1024 tokens: GB/s of what has to be read and written once.
void text(trainer::Device& device, Measured& measured) {
  constexpr double k_giga = 1e9;
  constexpr std::size_t k_words = 50'304;
  const trainer::TextShape shape{8, 1024, 768};
  const trainer::MaskedShape slots{shape.rows, shape.length, shape.length, k_words};
  const trainer::TextKernels& kernels = *device.kernels().text;
  trainer::Stream& stream = device.stream();
  const Buffer logits = device.allocate(slots.slots() * k_words, DType::f32);
  const Buffer words = device.allocate(k_words * shape.width, DType::f32);
  const Buffer positions = device.allocate(shape.length * shape.width, DType::f32);
  const Buffer x = device.allocate(shape.tokens() * shape.width, DType::f32);
  const Buffer scale = device.allocate(1, DType::f32);
  const Buffer changes = device.allocate(2 * shape.width, DType::f32);
  const Buffer score = device.allocate(sizeof(trainer::Score), DType::u8);
  const Buffer id_memory = device.allocate(shape.tokens(), DType::f32);
  const Buffer slot_memory = device.allocate(shape.tokens(), DType::f32);
  std::vector<std::int32_t> ids(shape.tokens());
  std::vector<std::int32_t> masked(shape.tokens());
  for (std::size_t i = 0; i < ids.size(); ++i) { // As in text, a few words again and again.
    const std::size_t any = i * 2654435761U % k_words;
    ids[i] = static_cast<std::int32_t>(i % 4 == 0 ? any % 16 : any);
    masked[i] = static_cast<std::int32_t>(i % shape.length);
  }
  stream.copy(ids.data(), id_memory.memory(), id_memory.bytes());
  stream.copy(masked.data(), slot_memory.memory(), slot_memory.bytes());
  const auto* const at = static_cast<const std::int32_t*>(id_memory.memory());
  const auto* const which = static_cast<const std::int32_t*>(slot_memory.memory());
  const auto rate = [&](const char* what, std::size_t bytes, const std::function<void()>& put) {
    measured.print(what, "GB/s", static_cast<double>(bytes) / measured.seconds(put) / k_giga);
  };
  const std::size_t tokens = 4 * shape.tokens() * shape.width; // Bytes of them.
  rate("masked_cross_entropy 8192 x 50304", 8 * slots.slots() * k_words, [&] {
    kernels.masked_cross_entropy(stream, slots, which, at, scale.data(), logits.data(),
                                 static_cast<trainer::Score*>(score.memory()));
  });
  rate("embed 8192 x 768", 2 * tokens, [&] {
    kernels.embed(stream, shape, at, words.data(), nullptr, positions.data(), x.data());
  });
  rate("embed_backward 8192 x 768", 2 * tokens, [&] {
    kernels.embed_backward(stream, shape, at, x.data(), words.data(), nullptr, positions.data());
  });
  const trainer::NormShape norm{shape.tokens(), shape.width, 1e-5F};
  const Buffer moments = device.allocate(2 * norm.rows, DType::f32);
  rate("norm 8192 x 768", 2 * tokens, [&] {
    kernels.norm(stream, norm, x.data(), positions.data(), positions.data(), words.data(),
                 moments.data());
  });
  rate("norm_backward 8192 x 768", 3 * tokens, [&] {
    kernels.norm_backward(stream, norm, words.data(), moments.data(), positions.data(), false,
                          x.data(), {}, changes.data(), changes.data() + shape.width);
  });
  // A product of next to no work, beside the sums of its 8192 × 3072 and 64 × 128 values.
  for (const auto& [rows, columns] : {std::pair{8192, 3072}, std::pair{64, 128}}) {
    const Matmul s{.m = static_cast<std::size_t>(columns),
                   .n = 1,
                   .k = static_cast<std::size_t>(rows),
                   .a_is_turned = true,
                   .epilogue = Matmul::Epilogue::bias_gradient,
                   .a = logits.data(),
                   .b = x.data(),
                   .c = words.data(),
                   .beside = positions.data()};
    Matmul alone = s;
    alone.epilogue = Matmul::Epilogue::none;
    const double seconds = measured.seconds([&] { device.kernels().matmul(stream, s); }) -
                           measured.seconds([&] { device.kernels().matmul(stream, alone); });
    measured.print(fmt::format("column sums {} x {}", rows, columns), "us", 1e6 * seconds);
  }
}

void products(trainer::Device& device, Measured& measured, const std::string& type) {
  constexpr double k_tera = 1e12;
  const std::size_t most = std::size_t{1} << 26;
  const Buffer a = device.allocate(most, DType::f32);
  const Buffer b = device.allocate(most, DType::f32);
  const Buffer c = device.allocate(most, DType::f32);
  const Buffer beside = device.allocate(most, DType::f32);
  const auto put = [&](const std::string& name, Matmul s) {
    // Activations are of their type, and parameters and their gradients of float32.
    const DType activation = device.activation_type();
    const bool is_of_weight = s.a_is_turned;
    s.is_rounded = true;
    s.fp8 = s.b_is_turned ? Matmul::Fp8::forward : Matmul::Fp8::backward; // Where it is asked for.
    s.a = {a.memory(), activation};
    s.b = {b.memory(), is_of_weight ? activation : DType::f32};
    s.c = {c.memory(), is_of_weight ? DType::f32 : activation};
    s.with = {a.memory(), s.epilogue == Matmul::Epilogue::dgelu_tanh ? activation : DType::f32};
    s.beside = {beside.memory(), is_of_weight ? DType::f32 : activation};
    const double seconds = measured.seconds([&] { device.kernels().matmul(device.stream(), s); });
    measured.print(fmt::format("{}{} {} x {} x {}", type, name, s.m, s.n, s.k), "TFLOP/s",
                   2.0 * static_cast<double>(s.m * s.n * s.k) / seconds / k_tera);
  };
  using Epilogue = Matmul::Epilogue;
  put("product",
      {.m = 64, .n = 128, .k = 784, .b_is_turned = true, .epilogue = Epilogue::relu_bias});
  put("product", {.m = 4096, .n = 4096, .k = 4096});
  put("qkv", {.m = 8192, .n = 768, .k = 768, .b_is_turned = true, .epilogue = Epilogue::bias});
  put("up, gelu",
      {.m = 8192, .n = 3072, .k = 768, .b_is_turned = true, .epilogue = Epilogue::gelu_tanh_bias});
  put("down", {.m = 8192, .n = 768, .k = 3072, .b_is_turned = true, .epilogue = Epilogue::bias});
  put("weight",
      {.m = 3072, .n = 768, .k = 8192, .a_is_turned = true, .epilogue = Epilogue::bias_gradient});
  put("up backward", {.m = 8192, .n = 3072, .k = 768, .epilogue = Epilogue::dgelu_tanh});
  put("part", {.m = 8192, .n = 768, .k = 768, .b_row = 2304});
  put("words", {.m = 1024, .n = 50257, .k = 768, .b_is_turned = true});
  put("words", {.m = 1024, .n = 50304, .k = 768, .b_is_turned = true});
}

void attention(trainer::Device& device, Measured& measured, const std::string& type) {
  for (const auto& s :
       {AttentionShape{32, 128, 12, 64, false}, AttentionShape{8, 1024, 12, 64, true},
        AttentionShape{4, 2048, 12, 64, true}, AttentionShape{8, 1024, 24, 32, true},
        AttentionShape{8, 1024, 6, 128, true}}) {
    const std::size_t values = s.rows * s.length * s.width();
    std::vector<Buffer> memory;
    for (int i = 0; i < 8; ++i) {
      memory.push_back(device.allocate(values, device.activation_type()));
    }
    const Buffer lengths = device.allocate(s.rows, DType::f32);
    const std::vector<std::int32_t> all(s.rows, static_cast<std::int32_t>(s.length));
    device.stream().copy(all.data(), lengths.memory(), lengths.bytes());
    const auto at = [&](int i) -> trainer::TypedPointer { return memory[i]; };
    const trainer::TextKernels& text = *device.kernels().text;
    const Buffer p = device.allocate(text.attention_room(device.stream(), s), DType::f32);
    const Buffer room = device.allocate(p.size(), DType::f32);
    const std::string name =
        fmt::format("{}attention {} x {} x {} x {}", type, s.rows, s.length, s.heads, s.depth);
    measured.print(name, "ms", 1e3 * measured.seconds([&] {
      text.attention(device.stream(), s, static_cast<const std::int32_t*>(lengths.memory()), {},
                     {at(0), at(1), at(2)}, p.data(), at(3));
    }));
    measured.print(name + " backward", "ms", 1e3 * measured.seconds([&] {
      text.attention_backward(
          device.stream(), s, static_cast<const std::int32_t*>(lengths.memory()), {},
          {at(0), at(1), at(2)}, p.data(), at(3), at(7), room.data(), {at(4), at(5), at(6)});
    }));
  }
}

void measure() {
  const auto device = trainer::make_device("cuda");
  Measured measured(*device);
  flat(*device, measured);
  text(*device, measured);
  products(*device, measured, "");
  attention(*device, measured, "");
  device->set_matmul_precision(trainer::MatmulPrecision::high);
  products(*device, measured, "TF32 ");
  device->multiply_in(DType::bf16);
  products(*device, measured, "bf16 ");
  attention(*device, measured, "bf16 ");
  if (device->set_matmul_precision(trainer::MatmulPrecision::fp8)) {
    products(*device, measured, "FP8 "); // Of operands that have been rounded already.
  }
  fmt::print("}}\n");
}

} // namespace

int main() {
  try {
    measure();
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench-kernels: {}\n", error.what());
    return 1;
  }
}
