#include "backends/kubernetes/submission/ssh_key.h"
#include "tests/unit/backends/temporary_folder.h"

#include <doctest/doctest.h>

#include <cstdio>
#include <cstdlib>
#include <string>

using namespace dtrain::kubernetes;

TEST_CASE("a key is one that ssh-keygen reads, and its halves belong together") {
  if (std::system("command -v ssh-keygen >/dev/null") != 0) { // NOLINT(cert-env33-c)
    MESSAGE("left out: no ssh-keygen here");
    return;
  }
  const dtrain::test::TemporaryFolder folder;
  const SshKey key = make_ssh_key();
  CHECK(make_ssh_key().public_text != key.public_text);
  const std::string path = folder.write("key", key.private_text);
  REQUIRE(std::system(("chmod 600 " + path).c_str()) == 0);      // NOLINT(cert-env33-c)
  FILE* pipe = popen(("ssh-keygen -y -f " + path).c_str(), "r"); // NOLINT(cert-env33-c)
  std::string found;
  for (int c = 0; (c = fgetc(pipe)) != EOF;) {
    found += static_cast<char>(c);
  }
  pclose(pipe);
  CHECK(found == key.public_text + "\n");
}
