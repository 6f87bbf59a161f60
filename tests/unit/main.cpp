#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

/// What the caller's shell says of jobs (DTRAIN_BACKEND …) is not for tests to hear.
int main(int argc, char** argv) {
  std::vector<std::string> names;
  for (char** each = environ; *each != nullptr; ++each) {
    const std::string text = *each;
    if (text.starts_with("DTRAIN_")) {
      names.push_back(text.substr(0, text.find('=')));
    }
  }
  for (const std::string& name : names) {
    unsetenv(name.c_str());
  }
  return doctest::Context(argc, argv).run();
}
