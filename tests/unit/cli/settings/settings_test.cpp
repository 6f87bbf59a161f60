#include "cli/settings/settings.h"
#include "tests/unit/cli/fake_backend.h"

#include <doctest/doctest.h>

#include <fstream>
#include <iterator>

using namespace dtrain;
using namespace dtrain::test;

namespace {

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::string error_of(const std::string& yaml) {
  Session session;
  std::filesystem::create_directories(session.config.parent_path());
  std::ofstream(session.config) << yaml;
  session.run({"list"});
  CHECK(session.status == 2);
  return session.err;
}

} // namespace

TEST_CASE("settings come back as they were written") {
  const TempFolder folder;
  Settings settings;
  settings.current_profile = "a: b # c";
  settings.profiles["a: b # c"] = {{{"backend", "local"}, {"namespace", "yes"}, {"hosts", "a,b"}},
                                   {{"mine", {{"claim", "c: d"}}}}};
  settings.data["mine"] = {{"path", "/x"}};
  settings.profiles["empty"] = {};
  write_settings(folder.path / "new" / "config.yaml", settings);
  const Settings read = read_settings(folder.path / "new" / "config.yaml");
  CHECK(read.current_profile == settings.current_profile);
  CHECK(read.profiles == settings.profiles);
  CHECK(read.data == settings.data);
  CHECK(read.data_of("").at("mine").at("claim") == "c: d");
  CHECK(read.data_of("empty").at("mine").at("path") == "/x");
}

TEST_CASE("a mistake in the settings is told with file and line") {
  CHECK(has(error_of("profiles:\n  a:\n    namespac: x\n"),
            "config.yaml:3: unknown key 'namespac'; did you mean 'namespace'?"));
  CHECK(has(error_of("profile: a\n"), "config.yaml:1: unknown key 'profile'"));
  CHECK(has(error_of("profiles: [a]\n"), "config.yaml:1: "));
  CHECK(has(error_of("profiles:\n  a: {\n"), "config.yaml:"));
  CHECK(has(error_of("- x\n"), "config.yaml:1: "));
  CHECK(has(error_of("profiles:\n  a:\n    data:\n      d:\n        claim: c\n        pth: x\n"),
            "config.yaml:6: unknown key 'pth'; did you mean 'path'?"));
  CHECK(has(error_of("profiles:\n  a:\n    hosts: {b: c}\n"), "config.yaml:3: hosts must be text"));
}

TEST_CASE("a profile that is not there is told with those that are") {
  Session session;
  session.run({"config", "set", "--profile=laptop", "namespace", "mine"});
  CHECK(session.status == 0);
  session.run({"list", "--profile=laptpo"});
  CHECK(session.status == 3);
  CHECK(has(session.err, "laptop"));
}

TEST_CASE("config set makes a profile, use changes to it, view says what gave a value") {
  Session session;
  CHECK(session.run({"config", "set", "namespace", "mine"}).status == 0);
  CHECK(session.run({"config", "get", "namespace"}).out == "mine\n");
  CHECK(has(session.run({"config", "view"}).out, "namespace      mine     profile default"));
  session.run({"config", "set", "context", "team"});
  session.run({"list"});
  CHECK(session.engine.access.get("context") == "team");
  session.run({"list", "--context=flag", "--kubeconfig=/k"});
  CHECK(session.engine.access.get("context") == "flag");
  CHECK(session.engine.access.get("kubeconfig") == "/k");
  session.run({"config", "set", "context", ""});
  session.run({"config", "set", "--profile=b", "namespace", "other"});
  CHECK(session.run({"config", "get", "namespace"}).out == "mine\n");
  CHECK(session.run({"config", "use", "b"}).status == 0);
  CHECK(session.run({"config", "get", "namespace"}).out == "other\n");
  CHECK(has(session.run({"config", "list"}).out, "b        *"));
  CHECK(session.run({"config", "use", "c"}).status == 3);
  CHECK(session.run({"config", "path"}).out == session.config.string() + "\n");
}

TEST_CASE("a profile made by name is current only once it is used, and none after its deletion") {
  Session session;
  session.run({"config", "set", "--profile=cluster", "namespace", "team"});
  CHECK(has(session.err, "always: dtrain config use cluster"));
  CHECK(session.run({"config", "get", "namespace"}).out == "default\n");
  session.run({"config", "use", "cluster"});
  CHECK(session.run({"config", "get", "namespace"}).out == "team\n");
  CHECK(session.run({"config", "delete", "cluster"}).out == "profile/cluster deleted\n");
  CHECK(session.run({"config", "get", "namespace"}).out == "default\n");
  CHECK(session.run({"config", "delete", "cluster"}).status == 3);
  CHECK(session.run({"config", "set", "namespace", "Not A Name"}).status == 2);
}

TEST_CASE("settings that cannot be written leave the old ones and no other file") {
  Session session;
  session.run({"config", "set", "namespace", "mine"});
  const auto folder = session.config.parent_path();
  std::filesystem::remove(session.config);
  std::filesystem::create_directories(session.config / "in-the-way");
  session.run({"config", "set", "namespace", "x"});
  CHECK(session.status == 1);
  CHECK(std::distance(std::filesystem::directory_iterator(folder), {}) == 1);
}
