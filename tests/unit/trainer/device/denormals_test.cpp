#include "trainer/device/cpu/denormals.h"

#include <doctest/doctest.h>

#include <atomic>

#include "tests/unit/thread.h"
#include "trainer/device/cpu/cpu_device.h"
#include "trainer/strategy/mirrored.h"

using namespace trainer;

TEST_CASE("a moment that decays ends at zero, in the thread that flushes and in those it starts") {
  unit::Thread([] { // Of its own, so that the other tests compute as they did.
    flush_denormals();
    std::atomic<int> zeros{0};
    run_replicas(3, CrossDeviceOps::shares, [&](Communicator&) {
      CHECK(flushes_denormals());
      for (const CpuKernels* kernels : {&portable_kernels(), &best_kernels()}) {
        float m[24];
        float v[24] = {};
        float parameter[24] = {};
        const float gradient[24] = {};
        std::fill_n(m, 24, 1e-6F);
        StepState state;
        state.step_size = 1e-3F;
        for (int step = 0; step < 1200; ++step) {
          kernels->adam(CpuDevice().stream(), 24, {}, &state, gradient, m, v, parameter);
        }
        zeros += m[0] == 0 && m[23] == 0 ? 1 : 0;
      }
    });
    CHECK(zeros == 6);
  })
      .join();
}
