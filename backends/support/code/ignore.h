// Files that .dtrainignore leaves out of a job's code, by the rules of gitignore(5): one pattern
// per line, "#" begins a comment, "!" includes again, a final "/" matches folders only, any other
// "/" anchors the pattern to the file's own folder, "**" matches any number of folders; the last
// matching pattern counts.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dtrain {

class IgnoreRules {
 public:
  /// Adds the lines of the file in `folder`, a path below the root ("" for the root itself).
  void add(std::string_view folder, std::string_view text);

  /// `path` is below the root, without a leading slash. What is in a folder that is left out is not
  /// to be asked for: nothing takes it back.
  bool leaves_out(std::string_view path, bool is_folder) const;

 private:
  struct Rule {
    std::string folder;
    std::vector<std::string> parts; ///< Of the path; "**" for any number of them.
    bool takes_back = false;
    bool folders_only = false;
  };
  std::vector<Rule> rules_;
};

} // namespace dtrain
