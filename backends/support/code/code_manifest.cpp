#include "backends/support/code/code_manifest.h"

#include "backends/support/code/ignore.h"
#include "backends/support/os/fd.h"
#include "backends/support/os/files.h"
#include "submit/errors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <climits>
#include <ctime>
#include <unordered_map>

namespace dtrain {

namespace {

constexpr const char* k_ignore_file = ".dtrainignore";
constexpr std::string_view k_heading = "dtrain code 1";
constexpr std::int64_t k_nanoseconds = 1'000'000'000;
constexpr std::uint32_t k_permissions = 0777;
constexpr std::size_t k_digest_characters = 64;

std::int64_t nanoseconds(const timespec& time) {
  return time.tv_sec * k_nanoseconds + time.tv_nsec;
}

class Scan {
 public:
  explicit Scan(std::string root) : root_(std::move(root)) {
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    // A file may change again within one tick of its file system's clock, and look the same.
    young_ = nanoseconds(now) - 2 * k_nanoseconds;
  }

  CodeManifest run() {
    const Fd folder(open(root_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!folder) {
      fail("", errno_text());
    }
    walk(folder.get(), "");
    std::sort(manifest_.files.begin(), manifest_.files.end(), by_path<CodeFile>);
    std::sort(manifest_.links.begin(), manifest_.links.end(), by_path<CodeLink>);
    std::sort(manifest_.folders.begin(), manifest_.folders.end());
    return std::move(manifest_);
  }

 private:
  template <class Entry>
  static bool by_path(const Entry& a, const Entry& b) {
    return a.path < b.path;
  }

  [[noreturn]] void fail(const std::string& path, const std::string& why) const {
    throw UsageError(fmt::format("--sync-source={}: cannot read {}: {}", printable(root_),
                                 path.empty() ? "it" : printable(path), why));
  }

  void walk(int folder, const std::string& path) {
    if (const auto text = read_file_at(folder, k_ignore_file)) {
      rules_.add(path, *text);
    }
    for_each_entry(folder, [&](const char* name) {
      if (std::string_view(name) != k_ignore_file) {
        visit(folder, path.empty() ? name : path + "/" + name, name);
      }
    });
  }

  void visit(int folder, const std::string& path, const char* name) {
    struct stat info {};
    if (fstatat(folder, name, &info, AT_SYMLINK_NOFOLLOW) != 0) {
      if (errno == ENOENT) {
        return; // It has disappeared since the folder was read.
      }
      fail(path, errno_text());
    }
    if (rules_.leaves_out(path, S_ISDIR(info.st_mode))) {
      return;
    }
    if (S_ISDIR(info.st_mode)) {
      const Fd below(openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
      if (!below) {
        fail(path, errno_text());
      }
      manifest_.folders.push_back(path);
      walk(below.get(), path);
    } else if (S_ISLNK(info.st_mode)) {
      std::array<char, PATH_MAX> target{};
      if (readlinkat(folder, name, target.data(), target.size() - 1) > 0) {
        manifest_.links.push_back({path, target.data()});
      }
    } else if (S_ISREG(info.st_mode)) {
      const std::int64_t modified = nanoseconds(info.st_mtim);
      const std::int64_t changed = nanoseconds(info.st_ctim);
      const bool is_young = modified >= young_ || changed >= young_;
      manifest_.files.push_back({.path = path,
                                 .digest = "",
                                 .mode = info.st_mode & k_permissions,
                                 .size = info.st_size,
                                 .modified = is_young ? 0 : modified,
                                 .changed = changed,
                                 .inode = info.st_ino});
    }
  }

  std::string root_;
  std::int64_t young_ = 0;
  IgnoreRules rules_;
  CodeManifest manifest_;
};

/// Takes fields off the front of a text: each ends with a NUL.
class FieldReader {
 public:
  explicit FieldReader(std::string_view text) : text_(text) {}

  bool good() const { return good_; }
  bool at_end() const { return text_.empty(); }

  std::string text() {
    const std::size_t end = text_.find('\0');
    good_ = good_ && end != std::string_view::npos;
    if (!good_) {
      text_ = {};
      return {};
    }
    std::string field(text_.substr(0, end));
    text_.remove_prefix(end + 1);
    return field;
  }

  template <class Number>
  Number number() {
    const std::string field = text();
    Number value{};
    const auto [stop, error] = std::from_chars(field.data(), field.data() + field.size(), value);
    good_ = good_ && error == std::errc() && stop == field.data() + field.size();
    return value;
  }

 private:
  std::string_view text_;
  bool good_ = true;
};

bool is_digest(const std::string& text) {
  return text.size() == k_digest_characters && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

} // namespace

CodeManifest scan_code(const std::string& folder) { return Scan(folder).run(); }

void reuse_digests(const CodeManifest& before, CodeManifest& now) {
  std::unordered_map<std::string_view, const CodeFile*> known;
  known.reserve(before.files.size());
  for (const CodeFile& file : before.files) {
    known.emplace(file.path, &file);
  }
  for (CodeFile& file : now.files) {
    const auto found = known.find(file.path);
    if (found == known.end()) {
      continue;
    }
    const CodeFile& old = *found->second;
    if (file.modified != 0 && old.modified == file.modified && old.changed == file.changed &&
        old.size == file.size && old.inode == file.inode) {
      file.digest = old.digest;
    }
  }
}

std::string write_manifest(const CodeManifest& manifest) {
  std::string text(k_heading);
  text += '\0';
  const auto add = [&](const auto& field) {
    fmt::format_to(std::back_inserter(text), "{}", field);
    text += '\0';
  };
  for (const auto& folder : manifest.folders) {
    add('d');
    add(folder);
  }
  for (const auto& link : manifest.links) {
    add('l');
    add(link.path);
    add(link.target);
  }
  for (const auto& file : manifest.files) {
    add('f');
    add(file.path);
    add(file.digest);
    add(file.mode);
    add(file.size);
    add(file.modified);
    add(file.changed);
    add(file.inode);
  }
  add("end"); // A truncated manifest lacks this line.
  return text;
}

std::optional<CodeManifest> read_manifest(std::string_view text) {
  FieldReader reader(text);
  if (reader.text() != k_heading) {
    return std::nullopt;
  }
  CodeManifest manifest;
  while (reader.good()) {
    const std::string kind = reader.text();
    if (kind == "d") {
      manifest.folders.push_back(reader.text());
    } else if (kind == "l") {
      CodeLink& link = manifest.links.emplace_back();
      link.path = reader.text();
      link.target = reader.text();
    } else if (kind == "f") {
      CodeFile& file = manifest.files.emplace_back();
      file.path = reader.text();
      file.digest = reader.text();
      file.mode = reader.number<std::uint32_t>() & k_permissions;
      file.size = reader.number<std::int64_t>();
      file.modified = reader.number<std::int64_t>();
      file.changed = reader.number<std::int64_t>();
      file.inode = reader.number<std::uint64_t>();
      if (!is_digest(file.digest)) {
        return std::nullopt;
      }
    } else {
      const bool whole = kind == "end" && reader.good() && reader.at_end();
      return whole ? std::optional(std::move(manifest)) : std::nullopt;
    }
  }
  return std::nullopt;
}

} // namespace dtrain
