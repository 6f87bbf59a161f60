#include "submit/template/templates.h"

#include "backends/kubernetes/render/template_data.h"
#include "submit/errors.h"
#include "submit/template/partials.h"
#include "submit/template/render.h"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>
#include <yaml-cpp/yaml.h>

using namespace dtrain;
using nlohmann::json;

namespace {

const json k_names = {{"name", "mnist"}, {"namespace", "team-a"}, {"at_once", true}};

constexpr const char* k_service = R"(apiVersion: v1
kind: Service
metadata:
  name: {{name}}
  namespace: {{namespace}}
  labels:
    app.kubernetes.io/managed-by: dtrain
    dtrain/job: {{name}}
    team: {{team}}
spec:
  clusterIP: None
  selector:
    dtrain/job: {{name}}
)";

Templates own_service(std::string text, std::vector<std::string> values) {
  Templates templates;
  templates.own["kubernetes/service.yaml"] = {"/mine/service.yaml", std::move(text)};
  templates.values = std::move(values);
  return templates;
}

std::string refused(const Templates& templates) {
  try {
    return "filled in: " + fill_template(templates, "kubernetes/service.yaml", k_names,
                                         kubernetes::template_rules());
  } catch (const UsageError& error) {
    return error.what();
  }
}

std::string without(std::string text, const std::string& part) {
  const auto at = text.find(part);
  REQUIRE(at != std::string::npos);
  return text.erase(at, part.size());
}

} // namespace

TEST_CASE("--set gives whole numbers, true and false as such, and all else as text") {
  const json values = template_values({"n=-3", "yes=true", "text=a: b", "quoted=\"8\"", "zip=08",
                                       "big=99999999999999999999", "half=0.5", "empty=", "two=a=b",
                                       "n=4", "odd=\"a\"b\""});
  CHECK(values == json{{"n", 4},
                       {"yes", true},
                       {"text", "a: b"},
                       {"quoted", "8"},
                       {"zip", "08"},
                       {"big", "99999999999999999999"},
                       {"half", "0.5"},
                       {"empty", ""},
                       {"two", "a=b"},
                       {"odd", "\"a\"b\""}});
  for (const char* text : {"novalue", "=x", "a b=x", "{{x}}=y", ""}) {
    CAPTURE(text);
    CHECK_THROWS_WITH_AS(template_values({text}), doctest::Contains("--set="), UsageError);
  }
}

TEST_CASE("a user's template takes the built-in's place, its values quoted as any") {
  const std::string text =
      fill_template(own_service(k_service, {"team=x\ny: \"z\""}), "kubernetes/service.yaml",
                    k_names, kubernetes::template_rules());
  CHECK(YAML::Load(text)["metadata"]["labels"]["team"].Scalar() == "x\ny: \"z\"");
  CHECK(fill_template({}, "kubernetes/service.yaml", k_names, kubernetes::template_rules())
            .find("team:") == std::string::npos);
}

TEST_CASE("what is wrong with a user's template is said with its file and line") {
  CHECK(refused(own_service(k_service, {})) ==
        "/mine/service.yaml:9: {{team}} has no value here; --set=team=VALUE gives it one");
  CHECK(refused(own_service(std::string(k_service) + "{{#more}}\n", {"team=a"})) ==
        "/mine/service.yaml:14: {{#more}} is not closed by {{/more}}");
  CHECK(refused(own_service(k_service, {"team=a", "name=b"}))
            .starts_with("--set=name: name is a variable of kubernetes/service.yaml already"));
  CHECK(refused(own_service(std::string(k_service) + "  - a\n b: [\n", {"team=a"}))
            .starts_with("/mine/service.yaml: renders to invalid YAML: "));
}

TEST_CASE("a partial is put in as deep as its tag stands, a user's own in the built-in's place") {
  Templates templates;
  templates.own["kubernetes/service.yaml"] = {"/mine/service.yaml",
                                              "a:\n  {{> secret.yaml }}\nb: {{n}}\n"};
  templates.own["kubernetes/secret.yaml"] = {"/mine/secret.yaml", "c: 1\n\nd: {{x}}"};
  const WholeTemplate whole = put_together(templates, "kubernetes/service.yaml");
  CHECK(whole.has_own);
  CHECK(whole.source.text == "a:\n  c: 1\n\n  d: {{x}}\nb: {{n}}\n");
  CHECK(whole.source.where(4) == "/mine/secret.yaml:3");
  CHECK(whole.source.where(5) == "/mine/service.yaml:3");
  CHECK(put_together({}, "kubernetes/job.yaml").source.text.find("{{>") == std::string::npos);
  // Of another folder, where it is named with that.
  const std::string script = put_together({}, "slurm/job.sbatch").source.text;
  CHECK(script.find("{{>") == std::string::npos);
  CHECK(script.find(builtin_template("batch/ranks.sh").text) != std::string::npos);
  CHECK_FALSE(put_together({}, "kubernetes/job.yaml").has_own);
  templates.own.erase("kubernetes/service.yaml");
  CHECK_FALSE(put_together(templates, "kubernetes/service.yaml").has_own);
}

TEST_CASE("a partial that is not there, is of itself or shares its line is refused with its line") {
  CHECK(refused(own_service("a: 1\n{{>secrets.yaml}}\n", {})) ==
        "/mine/service.yaml:2: {{>secrets.yaml}}: there is no such template; did you mean "
        "{{>secret.yaml}}?");
  CHECK(refused(own_service("{{>service.yaml}}\n", {})).find("nest deeper") != std::string::npos);
  CHECK(refused(own_service("a: {{>secret.yaml}}\n", {})).find("a line of their own") !=
        std::string::npos);
  CHECK(refused(own_service("{{>../local/job.yaml}}\n", {})).find("no such template") !=
        std::string::npos);
}

TEST_CASE("a user's template that loses what dtrain finds the job by is refused") {
  for (const auto& each :
       {std::pair("    dtrain/job: {{name}}\n", "metadata.labels.dtrain/job"),
        {"    app.kubernetes.io/managed-by: dtrain\n",
         "metadata.labels.app.kubernetes.io/managed-by"},
        {"  namespace: {{namespace}}\n", "metadata.namespace"},
        {"kind: Service\n", "kind"},
        {"  selector:\n    dtrain/job: {{name}}\n", "spec.selector.dtrain/job"}}) {
    const std::string lost = each.second;
    CAPTURE(lost);
    CHECK(refused(own_service(without(k_service, each.first), {"team=a"}))
              .starts_with(std::string("/mine/service.yaml: ") + lost + " must stay '"));
  }
  std::string other = k_service;
  other.replace(other.find("{{name}}"), 8, "other");
  CHECK(refused(own_service(other, {"team=a"})).find("metadata.name must stay 'mnist'") !=
        std::string::npos);
  CHECK(refused(own_service("- no\n- map\n", {})).find("must stay") != std::string::npos);
}

TEST_CASE("a --set that no template takes is refused") {
  CHECK_THROWS_WITH_AS(require_values_used(own_service(k_service, {"taem=a"})),
                       "--set=taem: no template of yours has {{taem}}; did you mean 'team'?",
                       UsageError);
  Templates none;
  none.values = {"a=b"};
  CHECK_THROWS_WITH_AS(require_values_used(none), doctest::Contains("--template"), UsageError);
  require_values_used(own_service(k_service, {"team=a"}));
}
