#include "backends/ssh/agent_frames.h"
#include "submit/errors.h"

#include <doctest/doctest.h>

#include <string>
#include <string_view>
#include <vector>

using namespace dtrain;
using namespace dtrain::ssh;

namespace {

using Kind = AgentFrame::Kind;

/// What a reader hands on of bytes that come so many at a time.
std::vector<std::string> frames_of(std::string_view bytes, std::size_t at_once) {
  FrameReader reader("w0rd");
  std::vector<std::string> found;
  for (std::size_t i = 0; i < bytes.size(); i += at_once) {
    reader.read(bytes.substr(i, at_once), [&](const AgentFrame& frame) {
      found.push_back(std::to_string(static_cast<int>(frame.kind)) + "/" +
                      std::to_string(frame.key) + "/" + std::string(frame.text));
    });
  }
  return found;
}

} // namespace

TEST_CASE("an agent's frames are found whatever they hold and however they come") {
  const std::string binary("\0\n\xff out 1 3\n\r", 12);
  const auto text = "Welcome!\n$ dtrain-agent w0r\ndtrain-agent w0rd \n\ndtrain-agent w0rd\n"
                    "out 12 12\n" +
                    binary + "err 3 0\nheartbeat 0 0\nended 12 3\n165";
  const std::vector<std::string> expected{"1/12/" + binary, "2/3/", "0/0/", "3/12/165"};
  for (const std::size_t at_once : {1, 2, 7, 1000}) {
    CHECK(frames_of(text, at_once) == expected);
  }
}

TEST_CASE("nothing is an agent's frame before its greeting") {
  FrameReader reader("w0rd");
  reader.read("out 1 3\nabc\ndtrain-agent other\n", [](const AgentFrame&) { FAIL("a frame"); });
  CHECK_FALSE(reader.greeted());
  reader.read("\ndtrain-agent w0rd\n", [](const AgentFrame&) { FAIL("a frame"); });
  CHECK(reader.greeted());
}

TEST_CASE("what is no frame is refused, and no memory is kept for it") {
  for (const std::string_view damaged :
       {"motd\n", "out 1\n", "out one 3\n", "out 1 -3\n", "out 1 3 \n", "out  3\n", "more 1 3\n",
        "out 1 99999999999\n", "out 1 1048577\n"}) {
    CHECK_THROWS_AS(frames_of("\ndtrain-agent w0rd\n" + std::string(damaged), 1000), EngineError);
  }
  const std::string endless(1000, 'o');
  CHECK_THROWS_AS(frames_of("\ndtrain-agent w0rd\n" + endless, 10), EngineError);
}

TEST_CASE("a code beyond 128 is a signal where there is a signal that ends programs") {
  const auto of = [](std::string_view text) { return ending_of({Kind::ended, 4, text}); };
  CHECK(of("0").exit_code == 0);
  CHECK(of("0").id == 4);
  CHECK(of("128").exit_code == 128);
  CHECK(of("137").signal == 9);
  CHECK_FALSE(of("137").exit_code.has_value());
  CHECK(of("165").exit_code == 165);
  CHECK(of("255").exit_code == 255);
  CHECK(ending_of({Kind::stuck, 4, "143 4711 4712"}).signal == 15);
  CHECK(stuck_text({Kind::stuck, 4, "143 4711 4712"}, "h1") ==
        "dtrain: processes on h1 survived SIGKILL: 4711 4712 (see ps -o pid,stat,wchan)\n");
  CHECK_THROWS_AS(of("killed"), EngineError);
  CHECK_THROWS_AS(ending_of({Kind::out, 4, "1"}), EngineError);
}
