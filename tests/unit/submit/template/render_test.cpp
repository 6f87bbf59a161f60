#include "submit/template/render.h"

#include "submit/errors.h"
#include "submit/template/template_kind.h"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>
#include <yaml-cpp/yaml.h>

using namespace dtrain;
using nlohmann::json;

namespace {

std::string refused(std::string_view text, const json& data = json::object(),
                    std::string_view name = "job.yaml") {
  try {
    return "rendered: " + render_template(name, text, data);
  } catch (const UsageError& error) {
    return error.what();
  }
}

} // namespace

TEST_CASE("strings are quoted, numbers and booleans bare, sections walk lists") {
  const json data = {{"name", "a: b #c"},
                     {"workers", 3},
                     {"spot", true},
                     {"dir", ""},
                     {"args", {"x", "\n- y", "{{name}}"}},
                     {"ranks", {{{"i", 0}, {"host", "h0"}}, {{"i", 1}, {"host", "h1"}}}}};
  const std::string text = R"(# the job
name: {{name}}
workers: {{workers}}
spot: {{spot}}
{{#dir}}
dir: {{dir}}
{{/dir}}
{{^dir}}
here: true
{{/dir}}
args:
{{#args}}
  - {{.}}
{{/args}}
ranks: [ {{#ranks}}{ {{host}}: {{i}}, of: {{workers}} }, {{/ranks}} ]
)";
  const std::string out = render_template("job.yaml", text, data);
  CHECK(out.starts_with("# the job\nname: \"a: b #c\"\nworkers: 3\nspot: true\nhere: true\nargs:\n"
                        "  - \"x\"\n  - \"\\n- y\"\n  - \"{{name}}\"\n"));
  const YAML::Node tree = YAML::Load(out);
  CHECK(tree["name"].Scalar() == "a: b #c");
  CHECK(tree["args"][1].Scalar() == "\n- y");
  CHECK(tree["ranks"][1]["h1"].as<int>() == 1);
  CHECK(tree["ranks"][1]["of"].as<int>() == 3);
}

TEST_CASE("a name without a value is an error that names template, line and tag") {
  CHECK(refused("a: 1\nb: {{nmae}}\n", {{"name", "x"}}) ==
        "job.yaml:2: {{nmae}} has no value here; --set=nmae=VALUE gives it one");
  CHECK(refused("\n\n{{#xs}}\n{{/xs}}\n") ==
        "job.yaml:3: {{#xs}} has no value here; --set=xs=VALUE gives it one");
  CHECK(refused("{{^xs}}\n{{/xs}}\n") ==
        "job.yaml:1: {{^xs}} has no value here; --set=xs=VALUE gives it one");
  CHECK(refused("{{#xs}}\na: {{y}}\n{{/xs}}\n", {{"xs", {{{"y", 1}}, {{"z", 1}}}}}) ==
        "job.yaml:2: {{y}} has no value here; --set=y=VALUE gives it one");
  CHECK(refused("a: {{xs}}\n", {{"xs", {1}}}) ==
        "job.yaml:1: {{xs}} is a list or a map; go through it with {{#xs}} … {{/xs}}");
  CHECK(refused("a: {{x}}\n", {{"x", nullptr}}) ==
        "job.yaml:1: {{x}} has no value here; --set=x=VALUE gives it one");
}

TEST_CASE("tags that could put a value in unquoted are refused") {
  const json data = {{"x", "v"}};
  CHECK(refused("a: {{{x}}}\n", data)
            .starts_with("job.yaml:1: {{{x}} would put a value in unquoted"));
  CHECK(refused("a: 1\nb: {{&x}}\n", data).starts_with("job.yaml:2: {{&x}} would put"));
  CHECK(refused("{{>x}}\n", data).find("partials") != std::string::npos);
  CHECK(refused("{{=<% %>=}}\n", data).find("delimiters") != std::string::npos);
  CHECK(refused("a: {{x y}}\n", data).find("bad name") != std::string::npos);
  CHECK(refused("a: {{}}\n", data).find("bad name") != std::string::npos);
}

TEST_CASE("tags that are not closed or not nested are refused with their line") {
  CHECK(refused("a\nb {{x\n") == "job.yaml:2: {{ is not closed by }}");
  CHECK(refused("a\n{{#x}}\n") == "job.yaml:2: {{#x}} is not closed by {{/x}}");
  CHECK(refused("{{/x}}\n") == "job.yaml:1: {{/x}} closes no section that is open here");
  CHECK(refused("{{#x}}{{#y}}{{/x}}{{/y}}\n") ==
        "job.yaml:1: {{/x}} closes no section that is open here");
  std::string deep;
  for (int i = 0; i < 40; ++i) {
    deep += "{{#x}}";
  }
  CHECK(refused(deep).find("nest deeper") != std::string::npos);
}

TEST_CASE("in YAML a value must be a whole scalar") {
  const json data = {{"x", "v"}, {"q", true}};
  for (const std::string bad : {"a: \"{{x}}\"\n",
                                "a: '{{x}}'\n",
                                "a: 'it''s {{x}}'\n",
                                "a: \"\\\"{{x}}\"\n",
                                "a: pre-{{x}}\n",
                                "a: pre {{x}}\n",
                                "a: {{x}}-post\n",
                                "a: {{x}} post\n",
                                "a:{{x}}\n",
                                "a: {{x}}{{x}}\n",
                                "a: {{x}} {{x}}\n",
                                "a: foo\n  {{x}}\n",
                                "a: |\n  {{x}}\n",
                                "a:\n  - >-\n    {{x}}\n",
                                "- |\n  text\n  {{x}}\n",
                                "- a: |2+\n    {{x}}\n",
                                "-{{x}}\n",
                                "a: &b {{x}}\n",
                                "a: !!int {{x}}\n",
                                "a: !b {{x}}\n",
                                "!a: {{x}}\n",
                                "- &a: {{x}}\n",
                                "a: [b {{x}}]\n",
                                "a: {{x}}: b\n  c\n",
                                "a: b - {{x}}\n",
                                "n\n  - {{x}}\n",
                                "a: b\n  c: {{x}}\n",
                                "- b\n  - {{x}}\n",
                                "  a: b\nc\n  - {{x}}\n",
                                "a:\n    b: c\n  d\n - {{x}}\n",
                                "c\n   - d\n  - {{x}}\n",
                                "\"a\":b\n { {{x}}, c\n",
                                "{{#q}}\"{{/q}}\n",
                                "a: [ {{#q}}]{{/q}}\n"}) {
    CAPTURE(bad);
    CHECK(refused(bad, data).find("rendered") == std::string::npos);
  }
  for (const std::string good : {"a: {{x}}\n",
                                 "---\na: {{x}}\n",
                                 "%YAML 1.2\n---\na: {{x}}\n",
                                 "a: b\nc: {{x}}\n",
                                 "- a: b\n  c: {{x}}\n",
                                 "- b\n- {{x}}\n",
                                 "a:\n  b: c\nd:\n  - {{x}}\n",
                                 "a: {{x}} # why\n",
                                 "a: b\t# {{x}}\n",
                                 "zq00000000: {{x}}\n",
                                 "- {{x}}\n",
                                 "- - {{x}}\n",
                                 "{{x}}: b\n",
                                 "a: [{{x}}, {{x}}]\n",
                                 "a: { {{x}}: {{x}} }\n",
                                 "a: [\n  {{x}},\n  {{x}}\n]\n",
                                 "# {{x}}\n",
                                 "a: it's\nb: {{x}}\n",
                                 "a: |\n  text\nb: {{x}}\n",
                                 "- a: |\n    text\n  b: {{x}}\n",
                                 "- |\n  text\n- {{x}}\n",
                                 "a: \"b\"\nc: {{x}}",
                                 "a: '#'\nb: {{x}}\n",
                                 "a: http://b#c\nd: {{x}}\n",
                                 "a:\n    b: c\n\nd: {{x}}\n",
                                 "a:\n- b\n- c:\n    d\n  e: {{x}}\n",
                                 "{{#q}}\na: {{x}}\n{{/q}}\n",
                                 "a: | # keep\n  b\nc: {{x}}\n"}) {
    CAPTURE(good);
    CHECK(refused(good, data).starts_with("rendered: "));
  }
}

TEST_CASE("a template makes 64 documents and no more") {
  std::string text = "a: {{x}}\n";
  for (int i = 1; i < 64; ++i) {
    text += "---\na: b\n";
  }
  CHECK(refused(text, {{"x", "v"}}).starts_with("rendered: "));
  CHECK(refused(text + "---\na: b\n", {{"x", "v"}}).find("more than 64") != std::string::npos);
}

TEST_CASE("in YAML text of several lines is written in lines, where there is room for it") {
  const json data = {{"x", "a\n- b: c\n"}, {"q", true}};
  CHECK(render_template("a.yaml", "k:\n  - a: {{x}}\n    b: 1\n", data) ==
        "k:\n  - a: |\n      a\n      - b: c\n    b: 1\n");
  CHECK(render_template("a.yaml", "- {{x}}\n{{#q}}\n- b\n{{/q}}\n", data) ==
        "- |\n  a\n  - b: c\n- b\n");
  for (const std::string quoted :
       {"a: [\n{ b: {{x}}\n} ]\n", "a: {{x}} # why\n", "a: {{x}}\r\n", "a: {{x}}", "a: {{x}} \n",
        "a: {{x}}\n   # a comment that is none of its text\n",
        "a: {{x}}\n  # nor one just as deep\n", "a: {{x}}\n{{#q}}   # nor this\n{{/q}}\n",
        "{{x}}: b\n", "m:\n    [a]: {{x}}\n"}) {
    CAPTURE(quoted);
    const std::string out = render_template("a.yaml", quoted, data);
    CHECK(out.find("\"a\\n- b: c\\n\"") != std::string::npos);
  }
}

TEST_CASE("in sh a value is one word wherever it may stand") {
  const json data = {
      {"x", "a'; echo foo\n$(id)"}, {"n", 3}, {"q", true}, {"args", {"if", "A=1", "7", "--lr=1"}}};
  CHECK(render_template("run.sh", "exec {{#args}}{{.}} {{/args}}# done\n", data) ==
        "exec 'if' 'A=1' '7' --lr=1 # done\n");
  CHECK(render_template("run.sh", "cmd --msg={{x}} -n {{n}}\n", data) ==
        "cmd --msg='a'\\''; echo foo\n$(id)' -n 3\n");
  for (const std::string bad :
       {"echo \"{{x}}\"\n", "echo '{{x}}'\n", "# {{x}}\n", "echo `a {{x}}`\n",
        "cat <<EOF\n{{x}}\nEOF\n", "echo $(( {{x}} ))\n", "a=\"$(b {{x}})\"\n", "(a)# {{x}}\n",
        "a &# {{x}}\n", "a\r#'\n{{x}}\n", "{{#q}}# {{x}}{{/q}}\n", "{{#q}}a{{/q}}#'\n{{x}}\n"}) {
    CAPTURE(bad);
    CHECK(refused(bad, data, "run.sh").find("rendered") == std::string::npos);
  }
  for (const std::string good :
       {"# don't\necho {{x}}\n", "echo \"a\\\"b\" {{x}}\n", "a=$(b {{x}})\n", "echo a#b {{x}}\n",
        "n=$(( 1 + 2 ))\necho {{x}}\n", "n=$((1<<2))\necho {{x}}\n", "a{{! b }}# {{x}}\n",
        "a {{#q}}{{x}} {{/q}}# b\n{{x}}\n", "{{#q}}# b\n{{/q}}{{x}}\n"}) {
    CAPTURE(good);
    CHECK(refused(good, data, "run.sh").starts_with("rendered: "));
  }
}

TEST_CASE("in JSON a value stands outside strings") {
  const json data = {{"x", "a\"\n"}, {"n", 3}};
  CHECK(json::parse(render_template("a.json", "{\"a\": {{x}}, \"n\": {{n}}}", data)) ==
        json({{"a", "a\"\n"}, {"n", 3}}));
  CHECK(refused("{\"a\": \"{{x}}\"}", data, "a.json").find("inside a string") != std::string::npos);
  CHECK(refused("{\"a\": {{x}}}", {{"x", "\xff"}}, "a.json").find("not UTF-8") !=
        std::string::npos);
}

TEST_CASE("bytes that are not UTF-8 reach YAML and sh") {
  const json data = {{"x", "\xff\x01"}};
  const auto bytes =
      YAML::Load(render_template("a.yaml", "a: {{x}}\n", data))["a"].as<YAML::Binary>();
  CHECK(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()) == "\xff\x01");
  CHECK(render_template("a.sh", "echo {{x}}\n", data) == "echo '\xff\x01'\n");
}

TEST_CASE("templates are found by name, and the kind by the name's ending") {
  CHECK(template_kind("local/job.yaml").is_yaml());
  CHECK(template_kind("local/node.sh").ending == ".sh");
  CHECK_THROWS_AS(template_kind("job.txt"), UsageError);
  CHECK_THROWS_AS(template_kind("job.sbatch"), UsageError);
  CHECK(builtin_template("local/job.yaml").name == "local/job.yaml");
  CHECK_THROWS_AS(builtin_template("local/none.yaml"), NotFound);
}
