// The jobs of a namespace's folder, and their heads: those that the index (job_index.h) still has,
// the others from their records.
#pragma once

#include "backends/supervised/store/job_record.h"

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dtrain {

/// Each job's name. A name never begins with a dot.
void for_each_job(int folder, const std::function<void(const char*)>& visit);

struct JobListing {
  struct Job {
    std::string name;
    std::optional<JobRecordHead> head; ///< Empty where the record is damaged.
  };
  std::vector<Job> jobs;
  std::string better_index; ///< To be written; empty where the index is as good as it was.
};

/// `index` is the text of the namespace's; empty where it has none.
JobListing list_jobs(int folder, std::string_view index);

} // namespace dtrain
