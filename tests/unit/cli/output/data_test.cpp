#include "cli/output/data.h"
#include "tests/unit/cli/fake_backend.h"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>
#include <yaml-cpp/yaml.h>

using namespace dtrain;
using namespace dtrain::test;

TEST_CASE("YAML and JSON say the same, whatever the strings hold") {
  JobStatus status = failed_job("mnist");
  status.priority = "yes";
  status.reason = "a: b # c\n\"d\" \x80";
  status.cause->last_stderr = {"", "- x", "{{y}}", "123", "null", "~"};
  const auto json = nlohmann::json::parse(job_data(status, "local", k_now, DataFormat::json));
  const auto yaml = YAML::Load(job_data(status, "local", k_now, DataFormat::yaml));
  CHECK(yaml["priority"].as<std::string>() == "yes");
  CHECK(yaml["reason"].as<std::string>() == json["reason"].get<std::string>());
  CHECK(yaml["instances"].size() == 2);
  CHECK(yaml["instances"][1]["name"].as<std::string>() == "worker-1");
  CHECK(yaml["instances"][0]["chief"].as<bool>());
  REQUIRE(yaml["cause"]["lastStderr"].size() == json["cause"]["lastStderr"].size());
  for (std::size_t i = 0; i < yaml["cause"]["lastStderr"].size(); ++i) {
    const auto item = yaml["cause"]["lastStderr"][i];
    CHECK(item.as<std::string>() == json["cause"]["lastStderr"][i].get<std::string>());
    CHECK(item.Tag() == "!");
  }
  CHECK(yaml["duration"].as<std::string>() == "600s");
}
