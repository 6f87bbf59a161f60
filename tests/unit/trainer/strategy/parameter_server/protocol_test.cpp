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
  hello.ranges = {{0, 12}, {12, 27}};
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
                              "/policy/max staleness", "/ranges/0/1", "/memory/1", "/memory/2/3"}) {
    for (const char* value : {"1e45", "1.5", "99999999999999999999", "\"1\"", "null"}) {
      CAPTURE(pointer);
      CAPTURE(value);
      CHECK(refused(pointer, value) == "its hello cannot be read");
    }
  }
  CHECK(refused("/worker", "4294967297") == "its hello cannot be read");
  CHECK(refused("/memory/2/0", "256") == "its hello cannot be read");
}

TEST_CASE("a range past the parameters' end, or of nothing, is refused") {
  CHECK(refused("/ranges/0/1", "28") == "its hello has an impossible range");
  CHECK(refused("/ranges/1/0", "27") == "its hello has an impossible range");
  CHECK(refused("/ranges/1/0", "28") == "its hello has an impossible range");
}

TEST_CASE("a hello that asks for more than the machine has, or a float twice, is refused") {
  CHECK(refused("/arena", "1099511627776") == "its hello has an impossible arena");
  CHECK(refused("/ranges/1", "[13, 27]") == "accepted");
  CHECK(refused("/ranges/1", "[11, 27]") == "its hello has an impossible range");
}
