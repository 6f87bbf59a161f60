// Files and folders of our own: private to the user (0700, 0600), replaced whole, never half
// written. Everything works relative to an open folder, so that a rename of the folder by another
// process cannot send a write elsewhere.
//
// No fsync: a record guards against crashes of processes, not of the machine, whose processes are
// gone after it anyway; a reader takes a file that it cannot parse for a lost job.
#pragma once

#include "backends/support/os/fd.h"

#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace dtrain {

/// "No space left on device". For the last system call where `error` is not given.
std::string errno_text();
std::string errno_text(int error);

/// Makes the folders above `path` (0700) that are not there. Throws Error.
void make_parents(const std::string& path);

/// Opens the folder at `path`; if it is absent and `create` is set, makes it (0700, with parents).
/// Empty if it is absent. Throws Error for a link, a folder of another user or one writable by
/// others: its contents cannot be trusted.
Fd open_private_folder(const std::string& path, bool create);

/// The same for a subfolder. `path` is for messages.
Fd open_private_folder_at(int folder, const std::string& name, const std::string& path,
                          bool create);

/// The file's bytes; empty where there is no such file. Throws Error for any other failure.
std::optional<std::string> read_file_at(int folder, const std::string& name);

/// Writes a temporary file and renames it over `name`. On failure (a full disk) throws Error with
/// `name` as it was and the temporary file gone.
void write_file_at(int folder, const std::string& name, std::string_view text);

/// Writes all of `text`. False with errno set where that fails.
bool write_all(int fd, std::string_view text);

/// Names in a folder, `.` and `..` left out, in the kernel's order.
void for_each_entry(int folder, const std::function<void(const char* name)>& visit);

/// Removes `name` and what is below it; links are removed, not followed. Returns whether all is
/// gone.
bool remove_tree_at(int folder, const std::string& name);

} // namespace dtrain
