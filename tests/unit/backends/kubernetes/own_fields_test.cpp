#include "backends/kubernetes/own_fields.h"

#include "backends/engine.h"
#include "backends/kubernetes/render/pod_roles.h"
#include "submit/errors.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

using namespace dtrain;
using namespace dtrain::kubernetes;

namespace {

/// A value that no field has where nobody says it.
void set(const JobField& field, JobSpec& job) {
  std::visit(
      [&](auto member) {
        auto& value = member(job);
        if constexpr (std::is_same_v<decltype(member), Member<std::string>>) {
          value = "4";
        } else if constexpr (std::is_same_v<decltype(member), own::Texts>) {
          value = {"a=b", "c=d"};
        } else if constexpr (std::is_same_v<decltype(member), Member<int>>) {
          value = 2;
        } else {
          value = true;
        }
      },
      field.member);
}

std::string refused(const std::function<void()>& action) {
  try {
    action();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}

} // namespace

TEST_CASE("each field of Kubernetes' own is written to a job file and read back, and is refused or "
          "not used elsewhere") {
  for (const JobField& field : own_fields()) {
    CAPTURE(field.key);
    JobSpec job;
    set(field, job);
    CHECK(!is_default(job, field));
    CHECK(job != JobSpec());
    CHECK(read_job_yaml(write_job_yaml(job), "job.yaml") == job);
    job.backend = "kubernetes";
    CHECK(check_fields(job).empty());
    for (const char* other : {"local", "ssh", "slurm"}) {
      job.backend = other;
      std::vector<std::string> notices;
      const std::string error = refused([&] { notices = check_fields(job); });
      CHECK(((error.starts_with(fmt::format("{}: the {} backend ", field.long_flag(), other)) &&
              error.ends_with("; drop it, or use --backend=kubernetes")) ||
             notices.size() == 1));
    }
  }
}

TEST_CASE("a job file's keys for Kubernetes keep their types and limits") {
  const auto read = [](const std::string& text) {
    return refused([&] { read_job_yaml(text, "job.yaml"); });
  };
  CHECK(read("runAsUser: me\n") == "job.yaml:1:12: runAsUser must be a whole number");
  CHECK(read("psPort: 70000\n") == "job.yaml:1:9: psPort must be between 0 and 65535, not 70000");
  CHECK(read("binpack: 1\n") == "job.yaml:1:10: binpack must be true or false");
  CHECK(read("tolerations: all\n").starts_with("job.yaml:1:14: tolerations must be a list"));
  JobSpec job;
  CHECK(own::share_memory(job) == "2Gi");
  CHECK(own::run_as_user(job) == 1000);
  own::share_memory(job) = "much";
  CHECK(refused([&] { resolve(job); }) ==
        "--share-memory=much: must be an amount such as 4, 500m or 16Gi");
  own::share_memory(job) = "2Gi";
  own::Texts{.key = "launcherSelectors"}(job) = {"gpu"};
  CHECK(refused([&] { resolve(job); }) == "--launcher-selector=gpu: must be KEY=VALUE");
}

TEST_CASE("a role's Pods ask for what the role says, and else for what the job does") {
  JobSpec job;
  job.type = "tfjob";
  job.ps = 1;
  job.cpu = "1";
  job.worker_cpu = "2";
  own::ps_image(job) = "servers:1";
  own::selectors(job) = {"disk=ssd"};
  own::Texts{.key = "psSelectors"}(job) = {"disk=none"};
  own::annotations(job) = {"who=all"};
  own::Texts{.key = "workerAnnotations"}(job) = {"who=workers"};
  settle_image(job);
  CHECK(job.image == "servers:1");
  const auto roles = pod_roles(job);
  REQUIRE(roles.size() == 2);
  CHECK(roles[0].image == "servers:1");
  CHECK(roles[0].cpu == "2");
  CHECK(roles[0].selectors == std::vector<std::string>{"disk=ssd"});
  CHECK(roles[0].annotations == std::vector<std::string>{"who=all", "who=workers"});
  CHECK(roles[1].cpu == "1");
  CHECK(roles[1].selectors == std::vector<std::string>{"disk=none"});
  CHECK(roles[1].annotations == std::vector<std::string>{"who=all"});
}
