// Files received as a tar archive: they go to a temporary folder beside their destination, and are
// renamed into place once all have arrived, so that nothing is ever visible half-written. No link
// on the path is followed, whoever made it.
#pragma once

#include "backends/support/files/tar_reader.h"
#include "backends/support/os/fd.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dtrain {

class ReceivedFiles {
 public:
  /// `destination`: as cp has it: a folder that is there gets them as `name`, else it is the name.
  /// Throws UsageError where they can't be there, Error where nothing can be written.
  ReceivedFiles(const std::string& destination, const std::string& name);

  /// Removes what was not placed.
  ~ReceivedFiles();

  ReceivedFiles(const ReceivedFiles&) = delete;
  ReceivedFiles& operator=(const ReceivedFiles&) = delete;

  /// Adds bytes of the archive. Throws EngineError if it is not an archive or has paths outside its
  /// folder, Error if it cannot be written.
  void add(std::string_view bytes);

  /// Puts them where they are to be: files replace files, folders are joined. Throws EngineError
  /// where the archive has not come to its end, UsageError, with nothing changed, where a folder is
  /// to replace a file, or a file a folder.
  void place();

  const std::string& path() const { return path_; } ///< The destination.
  std::int64_t files() const { return files_; }
  std::int64_t bytes() const { return bytes_; }
  /// What was left out, and why: "data: a link to /mnt/data".
  const std::vector<std::string>& left_out() const { return left_out_; }

 private:
  void begin(const TarEntry& entry);
  void write(std::string_view bytes);
  void end_file();
  void make_links();
  Fd open_folder(const std::string& path, bool create) const;
  std::pair<Fd, std::string> open_parent(const std::string& path, bool create) const;
  void join(int from, const std::string& from_name, int to, const std::string& to_name,
            const std::string& shown, bool checks_only) const;
  [[noreturn]] void fail(const std::string& path) const;

  TarReader reader_;
  std::string path_;
  std::string name_;     ///< The last component of the destination, in folder_.
  Fd folder_;            ///< The folder of the destination.
  std::string own_name_; ///< The name of the temporary folder in it.
  Fd own_;
  Fd file_; ///< The file being written.
  std::string file_path_;
  unsigned file_mode_ = 0;
  unsigned umask_;
  bool is_folder_ = false; ///< Whether a folder was requested; else a file.
  std::string only_;       ///< The file's name.
  std::vector<std::pair<std::string, std::string>> links_;
  std::vector<std::pair<std::string, unsigned>> folder_modes_;
  std::vector<std::string> left_out_;
  std::int64_t files_ = 0;
  std::int64_t bytes_ = 0;
};

} // namespace dtrain
