#include "backends/batch/identity.h"

#include "backends/batch/job_line.h"
#include "backends/batch/status.h"
#include "backends/slurm/queue.h"
#include "backends/slurm/system.h"
#include "submit/job_spec.h"

#include <doctest/doctest.h>

#include <string>

using namespace dtrain;
using namespace dtrain::batch;

namespace {

constexpr Time k_then = 1'000'000 * k_second;

JobRecord record_of(const std::string& id, Time submitted = k_then) {
  JobSpec job;
  job.name = "a";
  return read_records(write_job_line(job, {}, id, k_then, "far", submitted)).at("default/a");
}

QueuedJob queued(const std::string& comment, Time submitted) {
  QueuedJob job;
  job.id = "17";
  job.comment = comment;
  job.submitted = submitted;
  return job;
}

} // namespace

TEST_CASE("a job of the same number is a record's by its comment and when it was submitted") {
  const JobRecord record = record_of("17");
  CHECK(is_ours(record, queued("dtrain default/a", k_then)));
  CHECK(is_ours(record, queued("dtrain default/a | a site's own", k_then)));
  CHECK(is_ours(record, queued("dtrain default/a", k_then + 90'000 * k_second))); // Queued anew.
  CHECK_FALSE(is_ours(record, queued("dtrain default/a", k_then - 90'000 * k_second)));
  CHECK_FALSE(is_ours(record, queued("dtrain default/ab", k_then)));
  CHECK_FALSE(is_ours(record, queued("dtrain other/a", k_then)));
}

TEST_CASE("where nobody keeps the comment, when it was submitted decides") {
  const JobRecord record = record_of("17");
  for (const char* comment : {"", "somebody's"}) {
    CHECK(is_ours(record, queued(comment, k_then + 5 * k_second)));
    CHECK_FALSE(is_ours(record, queued(comment, k_then + 90'000 * k_second)));
    CHECK(is_ours(record_of("17", 0), queued(comment, k_then + 90'000 * k_second)));
  }
}

TEST_CASE("a record without a number has that of the last job with its comment") {
  JobRecord record = record_of("");
  CHECK(record.id.empty());
  find_number(record,
              Queue(slurm::read_queue("15|FAILED|None|1000000|1|2|n|b|dtrain default/a\n"
                                      "16|RUNNING|None|1000050|1|2|n|b|dtrain default/a\n"
                                      "17|RUNNING|None|1000060|1|2|n|b|dtrain default/b\n")));
  CHECK(record.id == "16");
  CHECK(record.status.uid == "16");
}

TEST_CASE("a record is as long without its number as with it") {
  JobSpec job;
  job.name = "a";
  CHECK(write_job_line(job, {}, "", 1).size() == write_job_line(job, {}, "123456789", 1).size());
  const auto [before, after] = around_id(write_job_line(job, {}, "17", 1));
  CHECK(before.ends_with("\"id\":"));
  CHECK(after.starts_with(","));
}

TEST_CASE("a job of another cluster than the one that is asked is elsewhere") {
  JobRecord record = record_of("17");
  mark_elsewhere(record, "near");
  CHECK(record.is_elsewhere);
  const JobStatus status =
      status_of(record, Queue(slurm::read_queue("17|FAILED|None|1000000|1|2|n|b|dtrain default/a")),
                slurm::queue_system());
  CHECK(status.phase == Phase::pending);
  CHECK(status.reason.find("cluster far") != std::string::npos);
  for (const char* here : {"", "far"}) {
    mark_elsewhere(record, here);
    CHECK_FALSE(record.is_elsewhere);
  }
}
