#include "tests/unit/toy_engine/toy.h"

#include "tests/unit/cli/fake_backend.h"

namespace dtrain::toy {
namespace {

test::FakeEngine& state(const EngineAccess& access) {
  static test::FakeEngine all;
  all.access = access;
  all.checks = {{CheckResult::Level::ok, "Toy box", "at " + access.get("toy-box")}};
  return all;
}

std::vector<std::string> boxes(const EngineAccess&) { return {"blue", "red"}; }

} // namespace

const Engine& engine() {
  static const Engine all = {
      .name = "toy",
      .make = [](const EngineAccess& access) -> std::unique_ptr<Backend> {
        return std::make_unique<test::FakeBackend>(state(access));
      },
      .fields = field_table({"name", "namespace", "command", "workers"},
                            {{"has no pictures", {"image"}}}, {{"plays alone", {"ps"}}}),
      .notes = {{"workers", "each a wooden horse"}},
      .access = {{.name = "toy-box",
                  .metavar = "BOX",
                  .help = "Box that the toys are in",
                  .complete = Complete::engine,
                  .in_profile = true,
                  .values = boxes}},
  };
  return all;
}

} // namespace dtrain::toy
