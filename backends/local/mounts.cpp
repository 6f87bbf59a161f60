#include "backends/local/mounts.h"

#include "backends/support/os/files.h"
#include "backends/support/os/pipe.h"
#include "backends/support/os/spawn.h"
#include "submit/errors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <filesystem>
#include <iterator>
#include <system_error>

namespace dtrain {

namespace {

namespace fs = std::filesystem;

constexpr mode_t k_mount_point_mode = 0755;
constexpr mode_t k_file = 0644;

[[noreturn]] void fail(const std::string& what) {
  throw Error(fmt::format("{}: {}", what, errno_text()));
}

void write_line(const char* path, const std::string& text) {
  const Fd file(open(path, O_WRONLY | O_CLOEXEC));
  if (!file || !write_all(file.get(), text)) {
    fail(fmt::format("cannot write {}", path));
  }
}

void leave_common_mounts() {
  const uid_t user = geteuid();
  const gid_t group = getegid();
  const int own_user = user == 0 ? 0 : CLONE_NEWUSER;
  if (unshare(CLONE_NEWNS | own_user) != 0) {
    fail("cannot create a mount namespace for the job");
  }
  if (own_user != 0) {
    write_line("/proc/self/setgroups", "deny");
    write_line("/proc/self/uid_map", fmt::format("{} {} 1", user, user));
    write_line("/proc/self/gid_map", fmt::format("{} {} 1", group, group));
  }
  if (mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
    fail("cannot make the job's mounts private (in a chroot, its root must be a mount)");
  }
}

std::string fd_path(const Fd& fd) { return fmt::format("/proc/self/fd/{}", fd.get()); }

void bind_mount(const std::string& from, const std::string& to) {
  if (mount(from.c_str(), to.c_str(), nullptr, MS_BIND | MS_REC, nullptr) != 0) {
    fail(fmt::format("cannot mount on {}", printable(to)));
  }
}

void make_file(const std::string& path) {
  if (!Fd(open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, k_file))) {
    fail(fmt::format("cannot make {}", printable(path)));
  }
}

/// Shows the entries of `folder` in `base`.
void show_entries(const Fd& folder, const std::string& base) {
  for_each_entry(folder.get(), [&](const char* name) {
    struct stat info {};
    const std::string to = base + "/" + name;
    if (fstatat(folder.get(), name, &info, AT_SYMLINK_NOFOLLOW) != 0) {
      return;
    }
    if (S_ISLNK(info.st_mode)) {
      std::array<char, PATH_MAX> text{};
      if (readlinkat(folder.get(), name, text.data(), text.size() - 1) > 0) {
        std::error_code no_matter; // A folder that is missing is reported by whoever uses it.
        std::filesystem::create_symlink(text.data(), to, no_matter);
      }
      return;
    }
    if (S_ISDIR(info.st_mode)) {
      mkdir(to.c_str(), k_mount_point_mode);
    } else {
      make_file(to);
    }
    bind_mount(fd_path(folder) + "/" + name, to);
  });
}

/// Covers `folder` by one in memory with the same entries. The root cannot be covered: another
/// becomes the root.
void cover(const std::string& folder, const std::string& workspace) {
  const bool is_root = folder == "/";
  const std::string& base = is_root ? workspace : folder;
  const Fd below(open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!below || mount("tmpfs", base.c_str(), "tmpfs", MS_NOSUID | MS_NODEV, "mode=755") != 0 ||
      mount(nullptr, base.c_str(), nullptr, MS_UNBINDABLE, nullptr) != 0) {
    fail(fmt::format("cannot make a mount point in {}", printable(folder)));
  }
  show_entries(below, base);
  if (is_root && (chroot(base.c_str()) != 0 || chdir("/") != 0)) {
    fail("cannot change the root folder");
  }
}

void make_mount_point(const std::string& target, bool is_folder, const std::string& workspace) {
  std::error_code error;
  if (fs::exists(target, error)) {
    return;
  }
  fs::path above = fs::path(target).parent_path();
  while (!fs::exists(above, error) && above.has_relative_path()) {
    above = above.parent_path();
  }
  cover(above.string(), workspace);
  fs::create_directories(is_folder ? fs::path(target) : fs::path(target).parent_path(), error);
  if (!is_folder) {
    make_file(target);
  }
}

/// Whether the data is already at its own path.
bool is_there(const Mount& wanted) {
  struct stat from {};
  struct stat to {};
  return !wanted.read_only && stat(wanted.source.c_str(), &from) == 0 &&
         stat(wanted.target.c_str(), &to) == 0 && from.st_dev == to.st_dev &&
         from.st_ino == to.st_ino;
}

std::vector<Mount> to_be_made(const std::vector<Mount>& mounts) {
  std::vector<Mount> made;
  std::copy_if(mounts.begin(), mounts.end(), std::back_inserter(made),
               [](const Mount& wanted) { return !is_there(wanted); });
  return made;
}

void add_mount(const Mount& wanted, const Fd& source, const std::string& workspace) {
  struct stat info {};
  if (!source || fstat(source.get(), &info) != 0) {
    fail(fmt::format("cannot open {}", printable(wanted.source)));
  }
  make_mount_point(wanted.target, S_ISDIR(info.st_mode), workspace);
  bind_mount(fd_path(source), wanted.target);
  if (wanted.read_only) {
    mount_attr attributes{};
    attributes.attr_set = MOUNT_ATTR_RDONLY;
    if (mount_setattr(AT_FDCWD, wanted.target.c_str(), AT_RECURSIVE, &attributes,
                      sizeof(attributes)) != 0) {
      fail(fmt::format("cannot make {} read-only", printable(wanted.target)));
    }
  }
}

} // namespace

void check_mounts(const std::vector<Mount>& wanted) {
  if (to_be_made(wanted).empty()) {
    return;
  }
  auto [said, say] = make_pipe();
  const pid_t child = fork();
  if (child == 0) {
    try {
      leave_common_mounts();
    } catch (const Error& error) {
      static_cast<void>(write_all(say.get(), error.what()));
    }
    _exit(0);
  }
  say.reset();
  std::array<char, 256> text{};
  ssize_t size = 0;
  while ((size = read(said.get(), text.data(), text.size())) < 0 && errno == EINTR) {
  }
  if (child > 0) {
    wait_for_child(child);
  }
  if (size > 0) {
    throw Error(fmt::format("{}; or use the data at its own path, without a mount: --data-dir={}",
                            std::string_view(text.data(), static_cast<std::size_t>(size)),
                            printable(wanted.front().source)));
  }
}

void enter_mounts(const std::vector<Mount>& wanted, const std::string& workspace) {
  const std::vector<Mount> mounts = to_be_made(wanted);
  if (mounts.empty()) {
    return;
  }
  leave_common_mounts();
  std::vector<Fd> sources; // Before the first mount hides what another one is made from.
  sources.reserve(mounts.size());
  for (const auto& made : mounts) {
    sources.emplace_back(open(made.source.c_str(), O_PATH | O_CLOEXEC));
  }
  for (std::size_t i = 0; i < mounts.size(); ++i) {
    add_mount(mounts[i], sources[i], workspace);
  }
}

} // namespace dtrain
