#include "submit/text/base64.h"

#include <doctest/doctest.h>

#include <string>

using dtrain::base64_decode;
using dtrain::base64_encode;

TEST_CASE("bytes are written in base64 with padding and read back") {
  CHECK(base64_encode("") == "");
  CHECK(base64_encode("f") == "Zg==");
  CHECK(base64_encode("fo") == "Zm8=");
  CHECK(base64_encode("foo") == "Zm9v");
  CHECK(base64_encode("\xFF\xFE\xFD") == "//79");
  for (const std::string bytes : {"", "f", "fo", "foo", "\xD4\xBE", "\x80\xFF\n"}) {
    CHECK(base64_decode(base64_encode(bytes)) == bytes);
  }
}

TEST_CASE("what is not base64 is refused") {
  CHECK(base64_decode("Zm\n9v\r\n") == "foo");
  CHECK(base64_decode("Zm9vZg") == "foof"); // padding may be left out, as kubectl has it
  for (const char* text : {"@", "Z", "Zm9vZ", "Zg==Zg==", "Zm9v\xE2\x80\xA8", "Zm-v"}) {
    CAPTURE(text);
    CHECK_FALSE(base64_decode(text).has_value());
  }
}
