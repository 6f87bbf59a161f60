#include "backends/supervised/store/job_listing.h"

#include "backends/job_status.h"
#include "backends/supervised/store/job_folder.h"
#include "backends/supervised/store/job_index.h"
#include "backends/support/os/fd.h"
#include "backends/support/os/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <utility>

namespace dtrain {

namespace {

constexpr std::size_t k_head_bytes = 4096; ///< A record's head is below 1 KiB.
constexpr std::size_t k_few = 64;          ///< Jobs that no index is written for.
constexpr int k_settled_seconds = 1;       ///< A file's time is coarser than a change is quick.

/// What the index has of a job, or a new one would have.
struct Found {
  const JobIndex::Entry* entry = nullptr; ///< Null where it does not hold.
  FileVersion version = {};
  std::string read = {}; ///< The head's text, where its record was read and it has ended.
};

/// A namespace's folder, and when it had last changed before anything in it was looked at; 0 where
/// it may be changed again and have that time still.
struct Space {
  int folder;
  std::int64_t changed;

  explicit Space(int of) : folder(of), changed(0) {
    struct stat info {};
    timespec now{};
    if (fstat(folder, &info) == 0 && clock_gettime(CLOCK_REALTIME, &now) == 0 &&
        info.st_mtim.tv_sec + k_settled_seconds < now.tv_sec) {
      changed = info.st_mtim.tv_sec * k_second + info.st_mtim.tv_nsec;
    }
  }
};

void read_head(const Space& space, bool is_unchanged, JobListing::Job& job, Found& found) {
  const auto path = [&] { return fmt::format("{}/{}", job.name, k_status_file); };
  struct stat info {};
  if (found.entry != nullptr && !found.entry->head.empty() &&
      (is_unchanged || (fstatat(space.folder, path().c_str(), &info, 0) == 0 &&
                        FileVersion::of(info) == found.entry->version))) {
    job.head = read_job_record_head(found.entry->head);
  }
  if (job.head) {
    return;
  }
  found.entry = nullptr;
  const Fd file(openat(space.folder, path().c_str(), O_RDONLY | O_CLOEXEC));
  std::array<char, k_head_bytes> block;
  const bool is_known = file && fstat(file.get(), &info) == 0;
  const auto count = is_known ? ::read(file.get(), block.data(), block.size()) : -1;
  if (count <= 0) {
    return;
  }
  const std::string_view text(block.data(), static_cast<std::size_t>(count));
  job.head = read_job_record_head(text);
  if (job.head && is_final(job.head->summary.phase)) {
    found.version = FileVersion::of(info);
    found.read = text.substr(0, job.head->bytes);
  }
}

/// Much of the time is the kernel's, for a file each: many are read by several threads.
void read_heads(const Space& space, bool is_unchanged, std::vector<JobListing::Job>& jobs,
                std::vector<Found>& found) {
  constexpr std::size_t k_for_a_thread = 500;
  constexpr std::size_t k_most_threads = 4;
  const std::size_t threads = std::clamp<std::size_t>(
      jobs.size() / k_for_a_thread, 1,
      std::clamp<std::size_t>(std::thread::hardware_concurrency(), 1, k_most_threads));
  std::atomic<std::size_t> next = 0;
  const auto read_some = [&] {
    constexpr std::size_t k_batch = 64;
    for (auto begin = next.fetch_add(k_batch); begin < jobs.size();
         begin = next.fetch_add(k_batch)) {
      for (auto i = begin; i < std::min(begin + k_batch, jobs.size()); ++i) {
        read_head(space, is_unchanged, jobs[i], found[i]);
      }
    }
  };
  std::vector<std::jthread> others;
  for (std::size_t i = 1; i < threads; ++i) {
    others.emplace_back(read_some);
  }
  read_some();
}

/// Empty where the index is as good as it was.
std::string better_index(const Space& space, const JobIndex& index,
                         const std::vector<JobListing::Job>& jobs,
                         const std::vector<Found>& found) {
  constexpr std::size_t k_part = 16;
  const auto count = [](const auto& of, const auto& has) {
    return static_cast<std::size_t>(std::count_if(of.begin(), of.end(), has));
  };
  const auto had = count(index.entries, [](const auto& entry) { return !entry.head.empty(); });
  const auto kept = count(found, [](const Found& job) { return job.entry != nullptr; });
  const auto missing = count(found, [](const Found& job) { return !job.read.empty(); });
  const bool is_of_then = space.changed != 0 && space.changed != index.folder_changed;
  if (missing < k_few + kept / k_part && had < k_few + 2 * kept && (!is_of_then || kept < k_few)) {
    return {};
  }
  JobIndex better;
  better.folder_changed = space.changed;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    const std::string_view name = jobs[i].name;
    if (name.find('\n') != std::string_view::npos) {
      better.folder_changed = 0; // No job's name, and not to be told from a line's end.
    } else if (found[i].entry != nullptr) {
      better.entries.push_back({name, found[i].entry->version, found[i].entry->head});
    } else {
      better.entries.push_back({name, found[i].version, found[i].read});
    }
  }
  return index_text(better);
}

} // namespace

void for_each_job(int folder, const std::function<void(const char*)>& visit) {
  for_each_entry(folder, [&](const char* name) {
    if (*name != '.') {
      visit(name);
    }
  });
}

JobListing list_jobs(int folder, std::string_view index_file) {
  const Space space(folder);
  const auto index = parse_job_index(index_file);
  const bool is_unchanged = space.changed != 0 && space.changed == index.folder_changed;
  JobListing listing;
  std::vector<Found> found;
  listing.jobs.reserve(index.entries.size() + k_few);
  found.reserve(index.entries.size() + k_few);
  if (is_unchanged) {
    for (const auto& entry : index.entries) {
      listing.jobs.push_back({std::string(entry.name), {}});
      found.push_back({&entry});
    }
  } else {
    std::unordered_map<std::string_view, const JobIndex::Entry*> entries(index.entries.size());
    for (const auto& entry : index.entries) {
      entries.emplace(entry.name, &entry);
    }
    for_each_job(folder, [&](const char* name) {
      const auto entry = entries.find(name);
      listing.jobs.push_back({name, {}});
      found.push_back({entry != entries.end() ? entry->second : nullptr});
    });
  }
  read_heads(space, is_unchanged, listing.jobs, found);
  listing.better_index = better_index(space, index, listing.jobs, found);
  return listing;
}

} // namespace dtrain
