// One file from the web, checked.
#pragma once

#include <string>

namespace trainer {

struct Download {
  std::string url;    ///< http, https or file
  std::string sha256; ///< Lower-case hex of the content.
  std::string path;   ///< Appears whole and checked, or not at all.
  bool progress_bar;  ///< On stderr.
};

/// Throws Error saying what failed; a server that sends nothing for half a minute is given up.
void download(const Download& what);

} // namespace trainer
