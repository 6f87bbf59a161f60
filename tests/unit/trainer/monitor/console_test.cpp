#include "trainer/monitor/console.h"

#include <doctest/doctest.h>

using namespace trainer;

TEST_CASE(
    "a step's line leaves room for an instance's name, and names time only where it is lost") {
  LogLine line;
  line.step = 12345;
  line.epoch = 99.96;
  line.loss = 12.3456;
  line.accuracy = 1;
  line.samples_per_second = 113'049;
  line.input_bound = 0.02;
  line.waiting = 0.1;
  CHECK(step_text(line, 100) ==
        "step 12345  epoch 99.96/100  loss 12.3456  accuracy 100.0%  113,049 samples/s");
  line.waiting = 0.694;
  CHECK(step_text(line, 100).ends_with("  waiting 69%"));
  line.input_bound = 0.999;
  CHECK(step_text(line, 100).ends_with("  input 100%"));
  CHECK(step_text(line, 100).size() <= 89);
}
