#include "submit/gpu_view.h"

#include "submit/errors.h"

#include <doctest/doctest.h>

#include <functional>

namespace dtrain {
namespace {

using Change = std::function<void(JobSpec&)>;

JobSpec job_with(const Change& change) {
  JobSpec job;
  job.name = "mnist";
  job.command = {"python", "train.py"};
  job.workers = 2;
  job.gpus = 1;
  change(job);
  return resolve(job);
}

std::string refused(const Change& change) {
  try {
    job_with(change);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}

TEST_CASE("LOCAL_RANK picks a worker's one GPU, and who takes all that it sees has its own") {
  CHECK(gpu_view(job_with([](JobSpec&) {})) == GpuView::automatic);
  CHECK(gpu_view(job_with([](JobSpec& job) { job.type = "pytorchjob"; })) == GpuView::automatic);
  for (const Change& change :
       {Change([](JobSpec& job) { job.gpus = 2; }),
        Change([](JobSpec& job) { job.type = "tfjob"; }), Change([](JobSpec& job) { job.ps = 1; }),
        Change([](JobSpec& job) { job.evaluator = true; }),
        Change([](JobSpec& job) { job.type = "rayjob"; }),
        Change([](JobSpec& job) { job.min_workers = 1; }),
        Change([](JobSpec& job) { job.max_workers = 4; }), Change([](JobSpec& job) {
          job.type = "pytorchjob";
          job.nproc_per_node = "1";
        })}) {
    CHECK(gpu_view(job_with(change)) == GpuView::rank);
  }
}

TEST_CASE("somebody may know better, but LOCAL_RANK must be able to pick") {
  const auto node = [](JobSpec& job) { job.gpus_visible = "node"; };
  CHECK(gpu_view(job_with(node)) == GpuView::node);
  CHECK(gpu_view(job_with([](JobSpec& job) { job.gpus_visible = "rank"; })) == GpuView::rank);
  CHECK(gpu_view(job_with([&](JobSpec& job) {
          node(job);
          job.type = "tfjob";
        })) == GpuView::node);
  CHECK(refused([&](JobSpec& job) {
          node(job);
          job.gpus = 2;
        }) == "--gpus-visible=node: LOCAL_RANK picks one GPU, and a worker has 2; drop it");
  CHECK(refused([&](JobSpec& job) {
          node(job);
          job.max_workers = 4;
        }).starts_with("--gpus-visible=node: workers of an elastic job come and go"));
  CHECK(refused([&](JobSpec& job) {
          node(job);
          job.gpus = 0;
        }) == "--gpus-visible=node: add --gpus=N, the number of GPUs per worker");
  CHECK(refused([](JobSpec& job) {
          job.type = "mpijob";
          job.gpus_visible = "rank";
        }).starts_with("--gpus-visible=rank: the launcher of a mpijob sees all GPUs"));
}

TEST_CASE("a view is written as it is read") {
  for (const GpuView view : {GpuView::automatic, GpuView::node, GpuView::rank}) {
    CHECK(parse_gpu_view(gpu_view_name(view)) == view);
  }
}

} // namespace
} // namespace dtrain
