#include "cli/output/job_text.h"

#include "cli/output/table.h"
#include "cli/output/time.h"
#include "submit/errors.h"
#include "submit/template/quote.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <csignal>
#include <cstring>

namespace dtrain {
namespace {

constexpr std::string_view k_not_available = "N/A";

std::string or_not_available(const std::string& text) {
  return text.empty() ? std::string(k_not_available) : printable(text);
}

Style phase_style(Phase phase) {
  switch (phase) {
  case Phase::queuing:
  case Phase::pending:
  case Phase::suspended:
    return Style::yellow;
  case Phase::running:
    return Style::cyan;
  case Phase::succeeded:
    return Style::green;
  case Phase::failed:
    return Style::red;
  case Phase::terminated:
    return Style::dim;
  }
  return Style::plain;
}

/// Allocated GPUs are known only while the job holds them.
std::string gpus_allocated(const JobSummary& job) {
  return job.phase == Phase::running ? fmt::to_string(job.gpus_allocated)
                                     : std::string(k_not_available);
}

/// "exit 3", "SIGKILL" or nothing.
std::string exit_text(const InstanceStatus& instance) {
  if (instance.signal) {
    return signal_name(*instance.signal);
  }
  return instance.exit_code ? fmt::to_string(*instance.exit_code) : "";
}

/// The usual cause of an ending, in brackets; empty if the ending already says it, or says little.
std::string hint_of(const FailureCause& cause) {
  constexpr int k_killed = 128 + SIGKILL;
  const bool killed = cause.signal == SIGKILL || cause.exit_code == k_killed;
  const bool says_why = cause.message.find("memory") != std::string::npos;
  return killed && !says_why ? " (often: out of memory)" : "";
}

} // namespace

Time age(const InstanceStatus& instance, Time now) {
  if (instance.started == 0) {
    return 0;
  }
  return (instance.ended == 0 ? now : instance.ended) - instance.started;
}

Time age(const JobSummary& job, Time now) {
  return (job.ended == 0 ? now : job.ended) - job.created;
}

std::string instance_state(const InstanceStatus& instance) {
  switch (instance.phase) {
  case Phase::queuing:
    return "Queuing";
  case Phase::pending:
    return "Pending";
  case Phase::running:
    return "Running";
  case Phase::succeeded:
    return "Succeeded";
  case Phase::failed:
    return "Failed";
  case Phase::suspended:
    return "Suspended";
  case Phase::terminated:
    return "Terminated";
  }
  return "Unknown";
}

std::string signal_name(int signal) {
  const char* name = sigabbrev_np(signal);
  return name == nullptr ? fmt::format("signal {}", signal) : fmt::format("SIG{}", name);
}

std::string cause_line(const FailureCause& cause) {
  if (!cause.message.empty()) {
    return printable(cause.message) + hint_of(cause);
  }
  return printable(failure_text(cause)) + hint_of(cause);
}

void print_last_stderr(Stream& out, const FailureCause& cause, std::string_view indent) {
  for (const auto& line : cause.last_stderr) {
    out.write(fmt::format("{}{}\n", indent, printable(line)));
  }
}

std::string shell_words(const std::vector<std::string>& words) {
  constexpr std::string_view k_plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                       "0123456789-_./=:@%+,";
  std::string text;
  for (const std::string& word : words) {
    const bool plain = !word.empty() && word.find_first_not_of(k_plain) == std::string::npos;
    text += (text.empty() ? "" : " ") + (plain ? word : printable(quote_sh(word)));
  }
  return text;
}

namespace {

void print_gpus(Stream& out, const JobStatus& job) {
  out.write("\nGPUs:\n");
  Table table({"INSTANCE", "NODE", "GPU(Requested)"});
  for (const auto& instance : job.instances) {
    table.add(
        {{instance.name}, {or_not_available(instance.node)}, {fmt::to_string(instance.gpus)}});
  }
  table.print(out, "  ", true);
  out.write(fmt::format("\n  Allocated/Requested GPUs of Job: {}/{}\n", job.gpus_allocated,
                        job.gpus_requested));
}

void print_events(Stream& out, const std::vector<JobEvent>& events, Time now) {
  out.write("\nEvents:\n");
  if (events.empty()) {
    out.write("  none\n");
    return;
  }
  Table table({"SOURCE", "TYPE", "AGE", "MESSAGE"});
  for (const JobEvent& event : events) {
    table.add({{printable(event.source)},
               {printable(event.type), event.type == "Warning" ? Style::yellow : Style::plain},
               {human_duration(now - event.time)},
               {printable(event.message)}});
  }
  table.print(out, "  ", true);
}

} // namespace

void print_job(Stream& out, const JobStatus& job, Time now, const JobDetails& details) {
  const auto& [wide, gpus, spec, events] = details;
  const auto field = [&](std::string_view label, const std::string& value) {
    std::string line =
        fmt::format("{:<13}{}", label.empty() ? "" : fmt::format("{}:", label), value);
    line.erase(line.find_last_not_of(' ') + 1);
    out.write(line + "\n");
  };
  field("Name", job.name);
  field("Status", styled(out.terminal(), phase_style(job.phase), phase_name(job.phase)));
  if (!job.reason.empty() && !job.cause) {
    field("Reason", printable(job.reason));
  }
  field("Namespace", job.namespace_name);
  field("Priority", or_not_available(job.priority));
  field("Trainer", job.trainer);
  field("Duration", human_duration(age(job, now)));
  field("CreateTime", local_time(job.created));
  field("EndTime", local_time(job.ended));
  if (job.restarts > 0) {
    field("Restarts", fmt::to_string(job.restarts));
  }
  if (spec) {
    field("Image", spec->task_images.empty()
                       ? or_not_available(spec->image)
                       : fmt::format("{}", fmt::join(spec->task_images, ", ")));
    field("Command", spec->runs_bundled_trainer() ? "dtrain-trainer " + shell_words(spec->command)
                     : spec->runs_images_own_program() ? "each image's own program"
                                                       : shell_words(spec->command));
    field("WorkingDir", or_not_available(spec->working_dir));
    for (const std::string& variable : spec->env) {
      field(&variable == spec->env.data() ? "Env" : "", printable(variable));
    }
  }

  out.write("\nInstances:\n");
  std::vector<std::string> headers = {"NAME",     "STATUS",         "AGE",
                                      "IS_CHIEF", "GPU(Requested)", "NODE"};
  if (wide) {
    headers.insert(headers.end(), {"PID", "EXIT"});
  }
  Table table(headers);
  for (const auto& instance : job.instances) {
    std::vector<Cell> row = {{instance.name},
                             {instance_state(instance), phase_style(instance.phase)},
                             {human_duration(age(instance, now))},
                             {instance.is_chief ? "true" : "false"},
                             {fmt::to_string(instance.gpus)},
                             {or_not_available(instance.node)}};
    if (wide) {
      row.push_back({instance.pid == 0 ? "N/A" : fmt::to_string(instance.pid)});
      row.push_back({exit_text(instance)});
    }
    table.add(std::move(row));
  }
  table.print(out, "  ", true);

  if (!job.tensorboard.empty() && !is_final(job.phase)) {
    out.write(
        fmt::format("\nTensorboard:\n  Your tensorboard will be available on:\n  {}\n  'dtrain "
                    "tensorboard {}' opens it here\n",
                    job.tensorboard, job.name));
  }
  if (gpus) {
    print_gpus(out, job);
  }
  if (job.cause) {
    out.write(fmt::format("\nCause:\n  {}\n",
                          styled(out.terminal(), Style::red, cause_line(*job.cause))));
    print_last_stderr(out, *job.cause, "    ");
  }
  if (events) {
    print_events(out, *events, now);
  }
}

void print_jobs(Stream& out, const std::vector<JobSummary>& jobs, std::string_view backend,
                Time now, bool wide, bool with_namespace) {
  std::vector<std::string> headers = {"NAME",           "STATUS",         "TRAINER", "DURATION",
                                      "GPU(Requested)", "GPU(Allocated)", "NODE",    "AGE"};
  if (with_namespace) {
    headers.insert(headers.begin(), "NAMESPACE");
  }
  if (wide) {
    headers.insert(headers.end(), {"BACKEND", "PRIORITY", "CREATED"});
  }
  Table table(headers);
  for (const auto& job : jobs) {
    std::vector<Cell> row;
    row.reserve(headers.size());
    if (with_namespace) {
      row.push_back({job.namespace_name});
    }
    row.push_back({job.name});
    row.push_back({std::string(phase_name(job.phase)), phase_style(job.phase)});
    row.push_back({job.trainer});
    row.push_back({human_duration(age(job, now))});
    row.push_back({fmt::to_string(job.gpus_requested)});
    row.push_back({gpus_allocated(job)});
    row.push_back({or_not_available(job.node)});
    row.push_back({human_duration(now - job.created)});
    if (wide) {
      row.push_back({std::string(backend)});
      row.push_back({or_not_available(job.priority)});
      row.push_back({local_time(job.created)});
    }
    table.add(std::move(row));
  }
  if (!wide) {
    table.fit(out.terminal());
  }
  table.print(out);
}

} // namespace dtrain
