// Words as the exec and spawn calls take them.
#pragma once

#include <string>
#include <vector>

namespace dtrain {

/// Ends with a null pointer. `words` outlive it, unchanged.
inline std::vector<char*> argv_of(std::vector<std::string>& words) {
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (std::string& word : words) {
    argv.push_back(word.data());
  }
  argv.push_back(nullptr);
  return argv;
}

} // namespace dtrain
