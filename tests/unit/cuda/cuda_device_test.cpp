// A GPU's streams, events and graphs, and what it refuses.
#include <doctest/doctest.h>

#include <cstdlib>
#include <string>

#include "tests/cuda_on_cpu/runtime.h"
#include "tests/unit/cuda/gpu.h"
#include "tests/unit/variable.h"
#include "trainer/errors.h"

using namespace trainer;
using namespace trainer::test;

TEST_CASE("what a stream is given is done when somebody waits for it, in the order of events") {
  const auto made_gpu = make_gpu();
  CudaDevice& gpu = *made_gpu;
  const auto other = gpu.make_stream();
  const Buffer pinned = gpu.allocate_pinned(2, DType::f32);
  const Buffer memory = gpu.allocate(2, DType::f32);
  pinned.data()[0] = 3;
  pinned.data()[1] = 4;
  gpu.stream().copy(pinned.memory(), memory.memory(), pinned.bytes());
  const auto arrived = gpu.stream().record();
  other->wait(*arrived);
  const Buffer back = gpu.allocate_pinned(2, DType::f32);
  back.data()[1] = 0;
  other->copy(memory.memory(), back.memory(), back.bytes());
  const auto done = other->record();
  CHECK(!done->has_passed());
  CHECK(back.data()[1] == 0);
  done->wait();
  CHECK(done->has_passed());
  CHECK(arrived->has_passed());
  CHECK(back.data()[1] == 4);
}

TEST_CASE("a kernel's time is read from events around it, and is there once it has passed") {
  const unit::Variable times("DTRAIN_FAKE_KERNEL_US", "3000");
  const auto gpu = make_gpu();
  On<float> x(*gpu, {1.0F});
  const Buffer squares = gpu->allocate(sizeof(SquareSum), DType::u8);
  const auto before = gpu->stream().record_timed();
  constexpr int k_kernels = 5;
  for (int i = 0; i < k_kernels; ++i) {
    gpu->kernels().squares(gpu->stream(), 1, x.data(), 0,
                           static_cast<SquareSum*>(squares.memory()));
  }
  const auto after = gpu->stream().record_timed();
  CHECK(!after->has_passed());
  after->wait();
  CHECK(after->has_passed());
  CHECK(after->seconds_since(*before) > k_kernels * 1.5e-3 - 1e-6);
  CHECK(after->seconds_since(*after) == 0);
}

TEST_CASE(
    "what is thrown while a step becomes a graph passes, and the next is a graph all the same") {
  const std::size_t before = cuda_on_cpu::live();
  {
    const auto made_gpu = make_gpu();
    Device& gpu = *made_gpu;
    On<float> x(gpu, {1.0F});
    const Buffer squares = gpu.allocate(sizeof(SquareSum), DType::u8);
    bool throws = false;
    const auto step = [&] {
      gpu.stream().replay({1}, [&] {
        gpu.kernels().squares(gpu.stream(), 1, x.data(), 0,
                              static_cast<SquareSum*>(squares.memory()));
        if (throws) {
          throw Error("no more data");
        }
        gpu.kernels().normalise(gpu.stream(), 1, static_cast<SquareSum*>(squares.memory()),
                                x.data());
      });
    };
    step();
    throws = true;
    CHECK_THROWS_WITH_AS(step(), "no more data", Error);
    throws = false;
    const int graphs = cuda_on_cpu::calls("cudaGraphLaunch");
    step();
    step();
    CHECK(cuda_on_cpu::calls("cudaGraphLaunch") == graphs + 2);
    CHECK(x.read()[0] == 1);
  }
  CHECK(cuda_on_cpu::live() == before);
}

TEST_CASE("a plug-in of another build is not looked at") {
  CHECK(dtrain_cuda_device("0.0.9", nullptr, 9, nullptr) == nullptr);
}

TEST_CASE("what a GPU cannot be is said in one line") {
  const auto told = [](int index) {
    try {
      make_gpu(index);
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(told(0).empty());
  CHECK(told(2) == "--device=cuda: there is no GPU 2 here, but 2, from 0 on");
  setenv("DTRAIN_FAKE_DRIVER", "0", 1);
  CHECK(told(0) == "--device=cuda: no NVIDIA driver on this machine; use --device=cpu");
  setenv("DTRAIN_FAKE_DRIVER", "12040", 1);
  CHECK(told(0).find("the driver is for CUDA 12.4, and CUDA 13.0 is needed") != std::string::npos);
  unsetenv("DTRAIN_FAKE_DRIVER");
  const auto made_gpu = make_gpu();
  CudaDevice& gpu = *made_gpu;
  CHECK_THROWS_WITH_AS(gpu.allocate(std::size_t{1} << 30, DType::f32),
                       doctest::Contains("gpu:0: no 4.00 GiB more, beside the 0.00 GiB that this "
                                         "process has there: of 0.25 GiB "),
                       Error);
  gpu.set_planned([] { return std::size_t{5} << 30; });
  CHECK_THROWS_WITH_AS(gpu.allocate(std::size_t{1} << 30, DType::f32),
                       doctest::Contains("; this rank is planned to take 5.00; lower --batch-size"),
                       Error);
}
