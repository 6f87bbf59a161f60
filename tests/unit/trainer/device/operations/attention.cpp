// Attention and its gradients, with dropout and without.
#include <algorithm>

#include <fmt/format.h>

#include "tests/unit/trainer/device/operations/oracles.h"

namespace trainer::test {
namespace {

using Pointers = std::vector<TypedPointer>;

/// Queries, keys, values, the context, its gradient, and the gradients of the three.
Operation attention_of(const AttentionShape& s, bool drops) {
  AttentionInputs in{.shape = s, .lengths = Ids(s.rows, static_cast<std::int32_t>(s.length))};
  in.lengths.back() = std::max(1, static_cast<std::int32_t>(s.length / 2));
  for (std::size_t i = 0; drops && i < s.lines() * s.words_a_line(); ++i) {
    in.keep.push_back(static_cast<std::uint16_t>(random_at(1, RandomStream::weights, 99, i)[0]));
  }
  const std::size_t n = s.rows * s.length * s.width();
  return {
      .name =
          fmt::format("attention of {} × {} tokens, {} heads of {}{}{}", s.rows, s.length, s.heads,
                      s.depth, s.is_causal ? ", causal" : "", drops ? ", dropped" : ""),
      .arrays = {activations(numbers(n, 1)), activations(numbers(n, 2)), activations(numbers(n, 3)),
                 activations_to_write(n), activations(numbers(n, 4)), activations_to_write(n),
                 activations_to_write(n), activations_to_write(n)},
      .run =
          [=](Device& device, const Pointers& at) {
            const TextKernels& text = *device.kernels().text;
            Stream& stream = device.stream();
            On<std::int32_t> lengths(device, in.lengths);
            On<std::uint16_t> keep(device, in.keep);
            const std::size_t room = text.attention_room(stream, s);
            On<float> p(device, Values(room, NAN));
            On<float> other(device, Values(room, NAN));
            const Dropped dropped =
                drops ? Dropped{keep.data(), static_cast<float>(in.scale)} : Dropped{};
            const Heads<ConstTypedPointer> of = {at[0], at[1], at[2]};
            text.attention(stream, s, lengths.data(), dropped, of, p.data(), at[3]);
            text.attention_backward(stream, s, lengths.data(), dropped, of, p.data(), at[3], at[4],
                                    other.data(), {at[5], at[6], at[7]});
            return finished(device);
          },
      .expected =
          [=](std::vector<Doubles>& at) {
            at[3] = attention(in, at[0], at[1], at[2]);
            const AttentionGradients found = attention_gradients(in, at[0], at[1], at[2], at[4]);
            at[5] = found.dquery;
            at[6] = found.dkey;
            at[7] = found.dvalue;
            return Doubles{};
          },
      .tolerance = 2e-5,
      .of_halves = 2e-2};
}

} // namespace

std::vector<Operation> attentions() {
  std::vector<Operation> all;
  // Heads that fill no tile, those that tensor cores take (32, 64 and 128 wide), and more tokens
  // than the CPU takes at once.
  for (const AttentionShape& s :
       {AttentionShape{1, 1, 1, 16}, AttentionShape{3, 20, 2, 16}, AttentionShape{2, 70, 1, 48},
        AttentionShape{1, 33, 3, 80}, AttentionShape{3, 20, 2, 16, true},
        AttentionShape{2, 70, 1, 48, true}, AttentionShape{2, 20, 3, 26},
        AttentionShape{1, 33, 3, 13, true}, AttentionShape{2, 150, 1, 16},
        AttentionShape{2, 150, 1, 16, true}, AttentionShape{1, 1, 1, 32},
        AttentionShape{3, 20, 2, 32}, AttentionShape{2, 70, 1, 64},
        AttentionShape{1, 150, 2, 64, true}, AttentionShape{3, 20, 2, 32, true},
        AttentionShape{2, 70, 1, 128}, AttentionShape{1, 100, 2, 128, true},
        AttentionShape{2, 300, 1, 8}, AttentionShape{2, 300, 1, 8, true}}) {
    all.push_back(attention_of(s, false));
    all.push_back(attention_of(s, true));
  }
  return all;
}

} // namespace trainer::test
