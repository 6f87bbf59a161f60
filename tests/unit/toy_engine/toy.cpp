#include "tests/unit/toy_engine/toy.h"

#include "backends/local/fork_channel.h"
#include "backends/supervised/supervise.h"
#include "backends/supervised/supervised_backend.h"

namespace dtrain::toy {
namespace {

constexpr std::string_view k_name = "toy";
constexpr std::string_view k_supervise = "supervise-toys";

std::vector<std::string> boxes(const EngineAccess&) { return {"blue", "red"}; }

int supervise_toys(const std::vector<std::string>& args) {
  return supervise_main(args, [](const SupervisedJob& job) -> std::unique_ptr<Channel> {
    return std::make_unique<ForkChannel>(job.file_limit, GpuUser{job.uid, job.cgroup});
  });
}

/// The least that an engine on supervised/ is: its ranks have no devices and no data.
class ToyBackend : public SupervisedBackend {
 public:
  explicit ToyBackend(std::string box)
      : SupervisedBackend(k_name, {}, run_helper(k_supervise)), box_(std::move(box)) {}

  std::vector<CheckResult> check() override {
    return {{CheckResult::Level::ok, "Toy box", "at " + box_}};
  }

 private:
  Plan render(const JobSpec& job, const Templates& templates, const GangSite& site,
              const std::vector<std::string>& /*own_gpus*/) const override {
    GangParts parts;
    parts.template_name = "local/job.yaml";
    parts.ranks = planned_ranks(job);
    return render_gang_plan(job, site, templates, std::move(parts));
  }

  std::string box_;
};

} // namespace

const Engine& engine() {
  static const Engine all = {
      .name = k_name,
      .make = [](const EngineAccess& access) -> std::unique_ptr<Backend> {
        return std::make_unique<ToyBackend>(access.get("toy-box"));
      },
      .fields = field_table({"name", "namespace", "command", "env", "workers", "maxRestarts"},
                            {{"has no pictures", {"image"}}}, {{"plays alone", {"ps"}}}),
      .notes = {{"workers", "each a wooden horse"}},
      .cannot = {{Ability::try_plan, "asks nobody"},
                 {Ability::scale, "has as many toys as it began with"},
                 {Ability::exec, "lets nobody join in"},
                 {Ability::cp, "lets no toy out of its box"},
                 {Ability::top_node, "counts no boxes"},
                 {Ability::top_job, "counts no toys"}},
      .access = {{.name = "toy-box",
                  .metavar = "BOX",
                  .help = "Box that the toys are in",
                  .complete = Complete::engine,
                  .in_profile = true,
                  .values = boxes}},
      .own = {text_field("--toy-color", "COLOR", "Color of the toys")},
      .helpers = {{k_supervise, supervise_toys}},
  };
  return all;
}

} // namespace dtrain::toy
