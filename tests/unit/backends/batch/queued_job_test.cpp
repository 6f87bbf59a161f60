#include "backends/batch/queued_job.h"

#include "backends/slurm/queue.h"

#include <doctest/doctest.h>

#include <vector>

using namespace dtrain;
using namespace dtrain::batch;

TEST_CASE("Indexes of an array are read as Slurm writes them, and nothing else is") {
  using Indexes = std::vector<int>;
  CHECK(read_indexes("3") == Indexes{3});
  CHECK(read_indexes("0-3,9,7") == Indexes{0, 1, 2, 3, 7, 9});
  CHECK(read_indexes("0-10:5%2") == Indexes{0, 5, 10});
  CHECK(read_indexes("1-2,2-3") == Indexes{1, 2, 3});
  CHECK(read_indexes("0-999%3").size() == 1000);
  for (const char* text :
       {"", "a", "3-1", "1-", "-1", "1,,2", "0-4:0", "0-9999999", "1 2", "1-2x"}) {
    CAPTURE(text);
    CHECK(read_indexes(text).empty());
  }
}

TEST_CASE("An array's tasks are found one by one") {
  // As Slurm 22.05.8 printed them, of an array of which three tasks may run at a time.
  const Queue queue(slurm::read_queue(
      "5_[9-999%3]|PENDING|JobHeldUser|1795409790|N/A|N/A||batch|dtrain default/s\n"
      "5_6|RUNNING|JobHeldUser|1795409790|1795409793|N/A|node1|batch|dtrain default/s\n"
      "5_2|COMPLETED|None|1795409790|1795409790|1795409791|node1|batch|x\n"
      "7|RUNNING|None|1795409790|1795409793|N/A|node1|batch|x\n"
      "8|CANCELLED|0:0|1795409790|1795409795|1795409795|(null)|batch|\n"));
  REQUIRE(queue.find("5_999") != nullptr);
  CHECK(queue.find("5_999")->state == "PENDING");
  CHECK(queue.find("5_6")->state == "RUNNING");
  CHECK(queue.find("5_2")->state == "COMPLETED");
  CHECK(queue.find("5_3") == nullptr);
  CHECK(queue.find("5_1000") == nullptr);
  CHECK(queue.find("7")->state == "RUNNING");
  CHECK(queue.find("6") == nullptr);
  REQUIRE(queue.find("8_3") != nullptr); // Told of as the array, by the job completion file.
  CHECK(queue.find("8_3")->nodes.empty());
}
