#include "trainer/strategy/parameter_server/protocol.h"

#include <doctest/doctest.h>

#include <string>

using namespace trainer;

namespace {

WorkerHello hello() {
  WorkerHello hello;
  hello.worker = 1;
  hello.workers = 2;
  hello.job = {{"model", "mlp"}};
  hello.arena = 27;
  hello.shards = {{"a", 0, 4, 3, 0, false}, {"embedding", 0, 5, 3, 12, true}};
  hello.memory = {4711, 5, {}};
  return hello;
}

/// What parse_hello() says of the hello with `value` at `pointer`.
std::string refused(const std::string& pointer, const std::string& value) {
  auto json = nlohmann::json::parse(hello_text(hello()));
  json[nlohmann::json::json_pointer(pointer)] = nlohmann::json::parse(value);
  try {
    parse_hello(json.dump());
  } catch (const LinkError& error) {
    return error.what();
  }
  return "accepted";
}

} // namespace

TEST_CASE("a hello is read as it was written") {
  const WorkerHello read = parse_hello(hello_text(hello()));
  CHECK(hello_text(read) == hello_text(hello()));
}

TEST_CASE("a hello with numbers that its fields do not hold is refused") {
  CHECK(refused("/worker", "0") == "accepted");
  for (const char* pointer : {"/worker", "/workers", "/arena", "/policy/backup workers",
                              "/policy/max staleness", "/shards/0/2", "/memory/1", "/memory/2/3"}) {
    for (const char* value : {"1e45", "1.5", "99999999999999999999", "\"1\"", "null"}) {
      CAPTURE(pointer);
      CAPTURE(value);
      CHECK(refused(pointer, value) == "its hello cannot be read");
    }
  }
  CHECK(refused("/worker", "4294967297") == "its hello cannot be read");
  CHECK(refused("/memory/2/0", "256") == "its hello cannot be read");
}

TEST_CASE("a shard larger than the parameters is refused, also where its size overflows") {
  CHECK(refused("/shards/0/2", "10") == "its hello has an impossible shard");
  CHECK(refused("/shards/0", R"(["a", 0, 4294967296, 4294967296, 0, false])") ==
        "its hello has an impossible shard");
  CHECK(refused("/shards/1/4", "13") == "its hello has an impossible shard");
}

TEST_CASE("a hello that asks for more than the machine has, or a float twice, is refused") {
  CHECK(refused("/arena", "1099511627776") == "its hello has an impossible arena");
  CHECK(refused("/shards/1", R"(["embedding", 0, 5, 3, 11, true])") == "accepted");
  CHECK(refused("/shards/1", R"(["embedding", 0, 6, 3, 9, true])") ==
        "its hello has an impossible shard");
}
