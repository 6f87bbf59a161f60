#include "backends/kubernetes/objects/trainjob.h"
#include "backends/kubernetes/status/reasons.h"

#include <doctest/doctest.h>

using namespace dtrain::kubernetes;
using nlohmann::json;

namespace {

json object_named(const std::string& name, const std::string& namespace_name) {
  return {{"metadata",
           {{"name", name}, {"namespace", namespace_name}, {"uid", name + "@" + namespace_name}}}};
}

} // namespace

TEST_CASE("a TrainJob that no JobSet is of has the one that its own runtime will make") {
  const json made = object_named("a", "n");
  const json early = object_named("a", "m");
  json set = object_named("a", "n");
  set["metadata"]["uid"] = "set";
  set["metadata"]["ownerReferences"] = json::array({{{"kind", "TrainJob"}, {"uid", "a@n"}}});
  const std::vector<json> waiting = without_set({made, early}, {set});
  REQUIRE(waiting.size() == 1);
  json runtime = object_named("a", "m");
  runtime["spec"]["template"]["spec"]["replicatedJobs"] = json::array();
  const std::vector<json> sets =
      sets_to_be(waiting, json::array({object_named("a", "n"), runtime}));
  REQUIRE(sets.size() == 1);
  CHECK(sets[0]["metadata"]["namespace"] == "m");
  CHECK(is_to_be(sets[0]));
  CHECK(!is_to_be(set));
  CHECK(sets_to_be(waiting, json()).empty());
}

TEST_CASE("a TrainJob without a JobSet gives its controller's reason, where it has one") {
  JobObjects objects{object_named("a-worker", "n"), {}, {}};
  objects.set = set_to_be(object_named("a", "n"), json::object());
  CHECK(why_pending(objects) == "Kubeflow Trainer has created no JobSet for its TrainJob yet; "
                                "check that its controller runs");
  objects.events = {std::make_shared<json>(json{{"involvedObject", {{"uid", "a@n"}}},
                                                {"reason", "TrainJobResourcesCreationFailed"},
                                                {"message", "quota"}})};
  CHECK(why_pending(objects) == "TrainJobResourcesCreationFailed: quota");
}
