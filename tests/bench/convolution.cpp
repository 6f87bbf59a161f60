// The CNN's second convolution, 16 images of 14 × 14 pixels, 32 channels to 64: microseconds an
// image of oneDNN's and of the trainer's own, forward, for weights and for images. Both of one
// thread (OMP_NUM_THREADS=1). The trainer's includes max-pooling and ReLU.
#include <fmt/core.h>
#include <oneapi/dnnl/dnnl.hpp>

#include <algorithm>
#include <functional>
#include <unordered_map>
#include <vector>

#include "trainer/clock.h"
#include "trainer/device/cpu/kernels.h"
#include "trainer/nn/cpu/convolution.h"

namespace {

using dnnl::memory;
using Tag = memory::format_tag;

constexpr memory::dim k_images = 16;
constexpr memory::dim k_side = 14;
constexpr memory::dim k_in = 32;
constexpr memory::dim k_out = 64;

/// Best of half a second.
double microseconds_an_image(const std::function<void()>& act) {
  double best = 1e9;
  for (const double end = trainer::now() + 0.5; trainer::now() < end;) {
    const double begin = trainer::now();
    act();
    best = std::min(best, trainer::now() - begin);
  }
  return best * 1e6 / k_images;
}

memory::desc any(const memory::dims& dims) { return {dims, memory::data_type::f32, Tag::any}; }

double one_dnn(dnnl::primitive primitive, const std::unordered_map<int, memory::desc>& what,
               const dnnl::engine& engine) {
  std::unordered_map<int, memory> arguments;
  for (const auto& [name, description] : what) {
    memory values(description, engine);
    std::fill_n(static_cast<float*>(values.get_data_handle()),
                description.get_size() / sizeof(float), 0.5F);
    arguments.emplace(name, values);
  }
  dnnl::stream stream(engine);
  return microseconds_an_image([&] {
    primitive.execute(stream, arguments);
    stream.wait();
  });
}

void print(const char* who, const char* what, double microseconds) {
  fmt::print("{{\"who\": \"{}\", \"what\": \"{}\", \"microseconds\": {:.1f}}}\n", who, what,
             microseconds);
}

void print_one_dnn() {
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  const memory::desc source({k_images, k_in, k_side, k_side}, memory::data_type::f32, Tag::nhwc);
  const memory::desc to({k_images, k_out, k_side, k_side}, memory::data_type::f32, Tag::nhwc);
  const auto weights = any({k_out, k_in, 3, 3});
  const memory::dims ones = {1, 1};
  const auto algorithm = dnnl::algorithm::convolution_auto;
  const dnnl::convolution_forward::primitive_desc forward(
      {dnnl::prop_kind::forward_training, algorithm, source, weights, to, ones, ones, ones},
      engine);
  const dnnl::convolution_backward_weights::primitive_desc for_weights(
      {algorithm, source, weights, to, ones, ones, ones}, engine, forward);
  const dnnl::convolution_backward_data::primitive_desc for_images(
      {algorithm, source, weights, to, ones, ones, ones}, engine, forward);
  print("oneDNN", "forward",
        one_dnn(dnnl::convolution_forward(forward),
                {{DNNL_ARG_SRC, forward.src_desc()},
                 {DNNL_ARG_WEIGHTS, forward.weights_desc()},
                 {DNNL_ARG_DST, forward.dst_desc()}},
                engine));
  print("oneDNN", "for weights",
        one_dnn(dnnl::convolution_backward_weights(for_weights),
                {{DNNL_ARG_SRC, for_weights.src_desc()},
                 {DNNL_ARG_DIFF_WEIGHTS, for_weights.diff_weights_desc()},
                 {DNNL_ARG_DIFF_DST, for_weights.diff_dst_desc()}},
                engine));
  print("oneDNN", "for images",
        one_dnn(dnnl::convolution_backward_data(for_images),
                {{DNNL_ARG_DIFF_SRC, for_images.diff_src_desc()},
                 {DNNL_ARG_WEIGHTS, for_images.weights_desc()},
                 {DNNL_ARG_DIFF_DST, for_images.diff_dst_desc()}},
                engine));
}

void print_own() {
  using namespace trainer;
  constexpr std::size_t images = k_images;
  const Pooling pooling{
      .grid = {k_side, k_side}, .channels = k_out, .to_y = k_side / 2 * k_out, .to_x = k_out};
  TensorTable tensors;
  WinogradConvolution layer("layer", k_in, images, pooling, tensors, best_kernels());
  const Buffer parameters(tensors.arena_size());
  const Buffer gradients(tensors.arena_size());
  const UnitMemory memory{parameters.data(), gradients.data()};
  layer.initialize(1, 0, parameters.span());
  const Buffer to(pooling.grid.pools() * k_out);
  print(best_kernels().name, "forward", microseconds_an_image([&] {
          layer.take_parameters(memory);
          for (std::size_t row = 0; row < images; ++row) {
            layer.forward(memory, row, to.data());
          }
        }));
  print(best_kernels().name, "for weights and images", microseconds_an_image([&] {
          for (std::size_t row = 0; row < images; ++row) {
            layer.backward(memory, row, pooling, to.data());
          }
          layer.finish_backward(memory, true);
        }));
}

} // namespace

int main() {
  print_one_dnn();
  print_own();
}
