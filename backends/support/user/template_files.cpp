#include "backends/support/user/template_files.h"

#include "backends/support/os/files.h"
#include "backends/support/user/config_folder.h"
#include "submit/errors.h"
#include "submit/options/nearest.h"
#include "submit/template/quote.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

namespace dtrain {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t k_largest = 1U << 20U; ///< Bytes of a template; the built-in have a few KB.

std::string read_text(const fs::path& path) {
  const Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info {};
  if (!file || fstat(file.get(), &info) != 0) {
    throw UsageError(
        fmt::format("template {}: cannot be read: {}", printable(path.string()), errno_text()));
  }
  const auto size = static_cast<std::size_t>(info.st_size);
  if (!S_ISREG(info.st_mode) || size > k_largest) {
    throw UsageError(fmt::format("template {}: is not a file of at most {} KiB",
                                 printable(path.string()), k_largest / 1024));
  }
  std::string text(size, '\0');
  std::size_t have = 0;
  for (ssize_t count = 0;
       (count = read(file.get(), text.data() + have, size - have)) > 0 && have < size;) {
    have += static_cast<std::size_t>(count);
  }
  text.resize(have);
  if (!is_utf8(text) || text.find('\0') != std::string::npos) {
    throw UsageError(
        fmt::format("template {}: has bytes that are not UTF-8 text", printable(path.string())));
  }
  return text;
}

/// The names that a job of the backend is made from.
std::vector<std::string> names_of(const std::string& backend) {
  std::vector<std::string> names;
  for (const BuiltinTemplate& built_in : builtin_templates()) {
    if (built_in.name.starts_with(backend + "/") && is_fillable(built_in.name)) {
      names.emplace_back(built_in.name);
    }
  }
  return names;
}

void add_file(const fs::path& path, const std::string& backend, Templates& templates) {
  const auto known = names_of(backend);
  const std::string name = backend + "/" + path.filename().string();
  if (std::find(known.begin(), known.end(), name) == known.end()) {
    const auto near = nearest(name, known);
    throw UsageError(fmt::format("template {}: the {} backend has no template {}; {}",
                                 printable(path.string()), backend, printable(name),
                                 near ? fmt::format("did you mean {}?", *near)
                                      : fmt::format("it has {}", fmt::join(known, ", "))));
  }
  templates.own[name] = {path.string(), read_text(path)};
}

/// Returns how many it has for the backend.
int add_folder(const fs::path& folder, const std::string& backend, Templates& templates) {
  const auto known = names_of(backend);
  std::error_code error;
  int count = 0;
  for (fs::directory_iterator entry(folder / backend, error), end; !error && entry != end;
       entry.increment(error)) {
    const auto ending = entry->path().extension();
    const bool is_template = std::any_of(known.begin(), known.end(), [&](const auto& name) {
      return fs::path(name).extension() == ending;
    });
    if (is_template && !entry->path().filename().string().starts_with('.')) {
      add_file(entry->path(), backend, templates);
      ++count;
    }
  }
  if (error && error != std::errc::no_such_file_or_directory &&
      error != std::errc::not_a_directory) {
    throw UsageError(fmt::format("templates in {}: cannot be read: {}",
                                 printable((folder / backend).string()), error.message()));
  }
  return count;
}

} // namespace

fs::path template_folder() { return config_folder() / "templates"; }

std::vector<BuiltinTemplate> find_templates(const std::string& word) {
  std::vector<BuiltinTemplate> found;
  std::vector<std::string> known;
  for (const BuiltinTemplate& built_in : builtin_templates()) {
    const std::string_view name = built_in.name;
    if (name == word || name.substr(0, name.rfind('.')) == word ||
        (is_fillable(name) && name.substr(0, name.find('/')) == word)) {
      found.push_back(built_in);
    }
    known.emplace_back(name.substr(0, name.rfind('.')));
  }
  if (found.empty()) {
    const auto near = nearest(word, known);
    throw NotFound(fmt::format("no template '{}'; {}", printable(word),
                               near ? fmt::format("did you mean '{}'?", *near)
                                    : std::string("'dtrain template list' shows all")));
  }
  return found;
}

Templates read_templates(const JobSpec& job, const fs::path& folder) {
  Templates templates;
  add_folder(folder, job.backend, templates);
  for (const std::string& path : job.templates) {
    std::error_code error;
    if (!fs::exists(path, error)) {
      throw UsageError(
          fmt::format("--template={}: there is no such file or folder", printable(path)));
    }
    if (!fs::is_directory(path, error)) {
      add_file(path, job.backend, templates);
    } else if (add_folder(path, job.backend, templates) == 0) {
      throw UsageError(fmt::format("--template={}: has no {}/: 'dtrain template copy {} {}' makes "
                                   "it",
                                   printable(path), job.backend, job.backend, printable(path)));
    }
  }
  templates.values = job.template_values;
  require_values_used(templates);
  return templates;
}

} // namespace dtrain
