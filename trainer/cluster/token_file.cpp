#include <cerrno>
#include <fstream>
#include <string>
#include <system_error>

#include <fmt/format.h>
#include <sys/stat.h>

#include "trainer/cluster/cluster.h"
#include "trainer/errors.h"

namespace trainer {
namespace {

constexpr std::size_t k_shortest_token = 16;

}

std::string read_token_file(const std::string& path) {
  const auto refuse = [&](const std::string& why) {
    throw UsageError(fmt::format("--token-file={}: {}", path, why));
  };
  struct stat status {};
  std::ifstream file(path);
  if (!file || stat(path.c_str(), &status) != 0) {
    refuse(std::generic_category().message(errno));
  }
  if ((status.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    refuse("other users can read it; run chmod 600 on it");
  }
  std::string token;
  std::getline(file, token);
  if (token.size() < k_shortest_token) {
    refuse(fmt::format("its first line, the token, has {} characters; use {} or more, such as "
                       "`openssl rand -hex 32` prints",
                       token.size(), k_shortest_token));
  }
  return token;
}

} // namespace trainer
