#include "backends/supervised/store/job_store.h"

#include "../temporary_folder.h"
#include "backends/support/os/files.h"
#include "submit/errors.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <fcntl.h>
#include <linux/capability.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <map>

namespace dtrain {
namespace {

const JobRef k_job{"default", "train"};

JobRecord example_record() {
  JobRecord record;
  auto& job = record.status;
  job.name = "train";
  job.namespace_name = "default";
  job.trainer = "DTRAINJOB";
  job.priority = "high";
  job.phase = Phase::failed;
  job.created = 1'795'231'440'000'000'001;
  job.started = 1'795'231'441'000'000'000;
  job.gpus_requested = 4;
  job.node = "host";
  job.uid = "0123";
  job.restarts = 2;
  job.reason = "worker-1 ended";
  InstanceStatus instance;
  instance.name = "worker-0";
  instance.phase = Phase::failed;
  instance.started = job.started;
  instance.is_chief = true;
  instance.pid = 42;
  instance.signal = 9;
  job.instances.push_back(instance);
  job.cause = job_failure("host", "worker-1 ended");
  job.cause->last_stderr = {"plain", "\xff\x01 odd"};
  record.owner = {
      {"host", "machine", "boot", 4'026'531'836}, {10, 1'000'000'000'000}, {11, 12}, 500, "/sys/x"};
  return record;
}

JobFolder publish(const JobStore& store, const JobRef& job) {
  auto folder = store.stage();
  auto record = example_record();
  record.status.name = job.name;
  folder.set_record(record);
  CHECK(store.publish(folder, job));
  return folder;
}

TEST_CASE("a job's record reads back as it was written") {
  const auto record = example_record();
  const auto found = read_job_record(write_job_record(record));
  REQUIRE(found);
  CHECK(found->owner == record.owner);
  CHECK(found->status.created == record.status.created);
  CHECK(found->status.phase == Phase::failed);
  CHECK(found->status.restarts == 2);
  REQUIRE(found->status.instances.size() == 1);
  CHECK(found->status.instances[0].signal == 9);
  CHECK(!found->status.instances[0].exit_code);
  REQUIRE(found->status.cause);
  CHECK(found->status.cause->last_stderr ==
        std::vector<std::string>{"plain", printable("\xff\x01 odd")});
}

TEST_CASE("every field of a record reads back, in every phase") {
  auto record = example_record();
  auto& job = record.status;
  job.ended = job.started + 1;
  job.expires = job.started + 2;
  job.gpus_allocated = 3;
  job.labels = {"team=vision", "odd=\"\\é", "quote=\""};
  job.tensorboard = "http://localhost:6006";
  job.instances.resize(2);
  auto& first = job.instances[0];
  auto& second = job.instances[1];
  first.ended = job.started + 3;
  first.gpus = 5;
  first.node = "node0";
  second.name = "worker-1";
  second.exit_code = 7;
  job.cause = {"worker-1", 1, "node1", 7, std::nullopt, "why", {"last"}};
  for (const Phase phase : {Phase::queuing, Phase::pending, Phase::running, Phase::succeeded,
                            Phase::failed, Phase::suspended, Phase::terminated}) {
    job.phase = first.phase = phase;
    const auto text = write_job_record(record);
    CAPTURE(text);
    const auto found = read_job_record(text);
    REQUIRE(found);
    CHECK(write_job_record(*found) == text);
    CHECK(found->status.phase == phase);
    CHECK(found->status.instances[0].phase == phase);
    const auto head = read_job_record_head(text);
    REQUIRE(head);
    CHECK(head->summary.phase == phase);
    CHECK(head->summary.ended == job.ended);
    CHECK(head->summary.expires == job.expires);
    CHECK(head->summary.labels == job.labels);
    CHECK(head->summary.gpus_requested == job.gpus_requested);
    CHECK(head->summary.gpus_allocated == job.gpus_allocated);
    CHECK(head->summary.node == job.node);
    CHECK((head->owner != nullptr) == !is_final(phase));
  }
  job.cause->exit_code.reset();
  job.cause->signal = 11;
  CHECK(read_job_record(write_job_record(record))->status.cause->signal == 11);
}

TEST_CASE("a damaged head is taken for none, whatever the damage") {
  auto record = example_record();
  record.status.phase = Phase::running;
  const auto text = write_job_record(record);
  REQUIRE(read_job_record_head(text));
  for (const auto& change : std::vector<std::pair<std::string, std::string>>{
           {"\"train\"", "\"tr\\qain\""},
           {"\"train\"", "\"\""},
           {"\"train\"", "7"},
           {"\"gpus_requested\": 4", "\"gpus_requested\": x"},
           {"\"gpus_requested\": 4", "\"gpus_requested\": \"4\""},
           {"\"guard_start_time\": 1000000000000", "\"guard_start_time\": 99999999999999999999999"},
           {"\"RUNNING\"", "\"WALKING\""},
           {"\"2026-", "\"2026+"},
           {"\"labels\": []", "\"labels\": [\"a\" \"b\"]"},
           {"\"labels\": []", "\"labels\": [1]"},
           {"\"labels\": []", "\"labels\": 1"},
           {"\"name\":", "\"name\""}}) {
    const std::string& whole = change.first;
    const std::string& damaged = change.second;
    CAPTURE(damaged);
    auto broken = text;
    const auto at = broken.find(whole);
    REQUIRE(at != std::string::npos);
    broken.replace(at, whole.size(), damaged);
    CHECK(!read_job_record_head(broken));
    CHECK(!read_job_record(broken));
  }
}

TEST_CASE("a record is read as any JSON is, with keys that a later version has") {
  auto record = example_record();
  record.status.phase = Phase::running;
  std::string text;
  for (const char c : write_job_record(record)) {
    text += c == '\n' ? "\r\n\t" : std::string(1, c);
  }
  text.insert(1, "\"a\": \"x\", \"b\": [\"y\"], \"c\": 5,");
  REQUIRE(read_job_record_head(text));
  const auto found = read_job_record(text);
  REQUIRE(found);
  CHECK(write_job_record(*found) == write_job_record(record));
}

TEST_CASE("an end is told by its signal, by name where it has one, or else by its exit code") {
  CHECK(ending_text(3, std::nullopt) == "exit code 3");
  CHECK(ending_text(std::nullopt, SIGKILL) == "signal 9 (SIGKILL)");
  CHECK(ending_text(1, SIGTERM) == "signal 15 (SIGTERM)");
  CHECK(ending_text(std::nullopt, 999) == "signal 999");
  CHECK(ending_text(std::nullopt, std::nullopt) == "exit code 0");
}

TEST_CASE("a record cut short anywhere is taken for none, and its head for a head only if whole") {
  const auto text = write_job_record(example_record());
  const auto instances = text.find("\"instances\"");
  for (std::size_t size = 0; size < text.size() - 2; ++size) {
    CHECK(!read_job_record(text.substr(0, size)));
    if (size > instances + 16) {
      CHECK(read_job_record_head(text.substr(0, size)));
    }
  }
}

TEST_CASE("a job appears whole and private, under a name that only one can have") {
  const test::TemporaryFolder temporary;
  const JobStore store(temporary / "state/dtrain", "local");
  CHECK(!store.open(k_job));
  const auto folder = publish(store, k_job);
  REQUIRE(store.open(k_job));
  CHECK(store.open(k_job)->record());
  struct stat info {};
  stat(store.job_path(k_job).c_str(), &info);
  CHECK((info.st_mode & 0777) == 0700);
  for (const char* parent : {"state", "state/dtrain", "state/dtrain/jobs"}) {
    CAPTURE(parent);
    REQUIRE(stat((temporary / parent).c_str(), &info) == 0);
    CHECK((info.st_mode & 0777) == 0700);
  }
  stat((store.job_path(k_job) + "/status.json").c_str(), &info);
  CHECK((info.st_mode & 0777) == 0600);

  auto second = store.stage();
  second.set_record(example_record());
  CHECK(!store.publish(second, k_job));
  store.discard(second);
  CHECK(store.remove(folder, k_job));
  CHECK(!store.open(k_job));
  CHECK(std::filesystem::is_empty(temporary / "state/dtrain/staging"));
}

TEST_CASE("two backends have jobs of one name, and each sees its own") {
  const test::TemporaryFolder temporary;
  const JobStore local(temporary / "dtrain", "local");
  const JobStore ssh(temporary / "dtrain", "ssh");
  const auto ours = publish(local, k_job);
  const auto theirs = publish(ssh, k_job);
  CHECK(JobStore::of(theirs.path()).job_path(k_job) == theirs.path());
  CHECK(JobStore::of(theirs.path()).root() == local.root());
  CHECK(local.remove(ours, k_job));
  CHECK(!local.open(k_job));
  CHECK(ssh.is_current(theirs, k_job));
  int seen = 0;
  local.for_each("", [&](const JobRef&, const auto&) { ++seen; });
  CHECK(seen == 0);
  ssh.for_each("", [&](const JobRef& job, const auto&) { seen += job.name == k_job.name ? 1 : 0; });
  CHECK(seen == 1);
}

TEST_CASE("removing a job leaves alone another that took its name meanwhile") {
  const test::TemporaryFolder temporary;
  const JobStore store(temporary / "dtrain", "local");
  const auto first = publish(store, k_job);
  CHECK(store.remove(first, k_job));
  publish(store, k_job);
  CHECK(!store.remove(first, k_job));
  CHECK(store.open(k_job));
}

TEST_CASE("what a crashed submission left is cleared by the next, what one at work has is not") {
  const test::TemporaryFolder temporary;
  const JobStore store(temporary / "dtrain", "local");
  const auto mine = store.stage();
  const auto waste = temporary / "dtrain/staging/999999999.1.0";
  std::filesystem::create_directories(waste + "/logs");
  const auto next = store.stage();
  CHECK(!std::filesystem::exists(waste));
  CHECK(std::filesystem::exists(mine.path()));
}

TEST_CASE(
    "what another machine or container stages is left alone, what an earlier start did is not") {
  const test::TemporaryFolder temporary;
  const JobStore store(temporary / "dtrain", "local");
  store.discard(store.stage());
  const auto& here = this_machine();
  const auto staged = [&](const Machine& machine) {
    const auto path = fmt::format("{}/staging/999999999.1.0.{}.{}.{}.{}", temporary / "dtrain",
                                  machine.boot, machine.pid_namespace, machine.id, machine.host);
    std::filesystem::create_directories(path + "/logs");
    return path;
  };
  const auto other_host = staged({"node.example.org", "id", "boot", 1});
  const auto container = staged({"container", here.id, here.boot, here.pid_namespace + 1});
  const auto ended = staged(here);
  const auto restarted = staged({here.host, here.id, "boot", 1});
  store.discard(store.stage());
  CHECK(std::filesystem::exists(other_host));
  CHECK(std::filesystem::exists(container));
  CHECK(!std::filesystem::exists(ended));
  CHECK(!std::filesystem::exists(restarted));
}

TEST_CASE("a state folder that is not ours is refused with what to do") {
  const test::TemporaryFolder temporary;
  const auto root = temporary / "dtrain";
  std::filesystem::create_directory(root);
  SUBCASE("writable by others") {
    for (const mode_t mode : {0777, 0720, 0702}) {
      chmod(root.c_str(), mode);
      CHECK_THROWS_WITH_AS(JobStore(root, "local").stage(),
                           doctest::Contains("writable by other users"), Error);
    }
    chmod(root.c_str(), 0755); // Which others may read.
    CHECK_NOTHROW(JobStore(root, "local").stage());
  }
  SUBCASE("a link") {
    std::filesystem::rename(root, temporary / "elsewhere");
    std::filesystem::create_directory_symlink(temporary / "elsewhere", root);
    CHECK_THROWS_WITH_AS(JobStore(root, "local").stage(),
                         doctest::Contains("is not a folder but a link"), Error);
  }
  SUBCASE("a file") {
    std::filesystem::remove(root);
    temporary.write("dtrain", "");
    CHECK_THROWS_AS(JobStore(root, "local").stage(), Error);
  }
  SUBCASE("somebody else's") {
    if (geteuid() == 0) {
      REQUIRE(chown(root.c_str(), 12345, 12345) == 0);
      CHECK_THROWS_WITH_AS(JobStore(root, "local").stage(),
                           doctest::Contains("belongs to user 12345"), Error);
    }
  }
}

TEST_CASE("no name leads out of the state folder") {
  const test::TemporaryFolder temporary;
  const JobStore store(temporary / "dtrain", "local");
  publish(store, k_job);
  for (const char* name : {"", ".", "..", "../train", "a/b", "../../default/train"}) {
    CHECK(!store.open({"default", name}));
    CHECK(!store.open({name, "train"}));
  }
}

TEST_CASE("listing gives the heads of a namespace or of all, damaged ones as such") {
  const test::TemporaryFolder temporary;
  const JobStore store(temporary / "dtrain", "local");
  publish(store, k_job);
  publish(store, {"other", "b"});
  const auto damaged = publish(store, {"other", "c"});
  damaged.write("status.json", "");
  int heads = 0;
  int broken = 0;
  const auto count = [&](const JobRef&, const std::optional<JobRecordHead>& head) {
    ++(head ? heads : broken);
  };
  store.for_each("other", count);
  CHECK(heads == 1);
  CHECK(broken == 1);
  store.for_each("", count);
  CHECK(heads == 3);
  store.for_each("none", count);
  CHECK(heads == 3);
}

/// Eighty jobs that have ended, one that has not, and the index that listing them makes.
struct IndexedJobs {
  test::TemporaryFolder temporary;
  JobStore store{temporary / "dtrain", "local"};
  std::string index = temporary / "dtrain/jobs/local/.default.list";

  IndexedJobs() {
    for (int i = 0; i < 80; ++i) {
      publish(store, {"default", fmt::format("job-{}", i)});
    }
    auto running = example_record();
    running.status.name = "running";
    running.status.phase = Phase::running;
    publish(store, {"default", "running"}).set_record(running);
    nodes();
  }

  std::map<std::string, std::string> nodes() const {
    std::map<std::string, std::string> found;
    store.for_each("default", [&](const JobRef& job, const std::optional<JobRecordHead>& head) {
      found[job.name] = head ? head->summary.node : "damaged";
    });
    return found;
  }

  std::string index_text() const { return read_file_at(AT_FDCWD, index).value_or(""); }
  void set_index(std::string_view text) const { std::ofstream(index, std::ios::binary) << text; }

  /// As if its jobs had come and gone so long ago, and been listed since.
  void settle(int seconds) const {
    const auto folder = temporary / "dtrain/jobs/local/default";
    const std::array<timespec, 2> times{{{0, UTIME_OMIT}, {time(nullptr) - seconds, 0}}};
    REQUIRE(utimensat(AT_FDCWD, folder.c_str(), times.data(), 0) == 0);
    nodes();
  }
};

TEST_CASE_FIXTURE(IndexedJobs, "jobs that have ended are listed from one file") {
  auto text = index_text();
  CHECK(text.find("\n0 0 0 0 running\n\n") != std::string::npos);
  const auto head = text.find("job-7\n");
  REQUIRE(head != std::string::npos);
  text.replace(text.find("\"host\"", head), 6, "\"kept\"");
  set_index(text);
  const auto found = nodes();
  CHECK(found.size() == 81);
  CHECK(found.at("job-7") == "kept");
  CHECK(found.at("job-8") == "host");
  CHECK(std::filesystem::is_empty(temporary / "dtrain/staging"));
}

TEST_CASE_FIXTURE(IndexedJobs,
                  "a job's own record is believed over the index, and one alone is a job") {
  const auto folder = store.open({"default", "job-7"});
  REQUIRE(folder);
  auto record = *folder->record();
  record.status.node = "moved";
  folder->set_record(record);
  const JobRef gone{"default", "job-8"};
  CHECK(store.remove(*store.open(gone), gone));
  store.open({"default", "job-9"})->write("status.json", "");
  publish(store, {"default", "newest"});
  const auto found = nodes();
  CHECK(found.size() == 81);
  CHECK(found.at("job-7") == "moved");
  CHECK(!found.contains("job-8"));
  CHECK(found.at("job-9") == "damaged");
  CHECK(found.at("newest") == "host");
}

TEST_CASE_FIXTURE(IndexedJobs,
                  "while no job comes or goes, those that have ended are not looked at") {
  CHECK(index_text().starts_with("0 "));
  settle(60);
  CHECK(!index_text().starts_with("0 "));
  auto record = *store.open({"default", "job-7"})->record();
  record.status.node = "overlooked";
  store.open({"default", "job-7"})->set_record(record);
  CHECK(nodes().at("job-7") == "host");
  record.status.phase = Phase::running;
  record.status.node = "seen";
  store.open({"default", "running"})->set_record(record);
  CHECK(nodes().at("running") == "seen");
}

TEST_CASE_FIXTURE(IndexedJobs, "a job that went and came anew under its name is read anew") {
  settle(60);
  const JobRef again{"default", "job-8"};
  CHECK(store.remove(*store.open(again), again));
  const auto folder = publish(store, again);
  auto record = *folder.record();
  record.status.node = "another";
  folder.set_record(record);
  CHECK(nodes().at("job-8") == "another");
  settle(30);
  CHECK(nodes().at("job-8") == "another");
}

TEST_CASE_FIXTURE(IndexedJobs, "an index that is cut off or damaged changes nothing") {
  const auto text = index_text();
  const auto right = nodes();
  for (std::size_t size = 0; size < text.size(); size += 331) {
    set_index(text.substr(0, size));
    REQUIRE(nodes() == right);
  }
  for (const std::string_view damaged :
       {"\n\n", "99999999999999999999 1 1 1 job-7\n{", "5 1 1 1 job-7\n{\"a\"", "-1 1 1 1 a\n\n",
        "18446744073709551615 1 1 1 job-7\n{}\n"}) {
    set_index(damaged);
    CHECK(nodes() == right);
    set_index(fmt::format("0 1\n{}", damaged));
    CHECK(nodes() == right);
  }
}

TEST_CASE_FIXTURE(IndexedJobs, "an index that is cut off hides no job of a namespace at rest") {
  settle(60);
  const auto text = index_text();
  const auto right = nodes();
  for (std::size_t size = 0; size < text.size(); size += 331) {
    set_index(text.substr(0, size));
    REQUIRE(nodes() == right);
  }
  std::filesystem::create_directory(temporary / "dtrain/jobs/local/default/no\njob");
  settle(30);
  CHECK(index_text().starts_with("0 "));
  CHECK(nodes().size() == right.size() + 1);
}

TEST_CASE("a home that cannot be written to is named with the reason") {
  const test::TemporaryFolder temporary;
  chmod(temporary.path().c_str(), 0500);
  // Root may write all the same, unless it lays that right down.
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  std::array<__user_cap_data_struct, 2> mine{};
  REQUIRE(syscall(SYS_capget, &header, mine.data()) == 0);
  auto fewer = mine;
  fewer[0].effective &= ~(1U << CAP_DAC_OVERRIDE);
  REQUIRE(syscall(SYS_capset, &header, fewer.data()) == 0);
  std::string text;
  try {
    JobStore(temporary / ".local/state/dtrain", "local").stage();
  } catch (const Error& error) {
    text = error.what();
  }
  REQUIRE(syscall(SYS_capset, &header, mine.data()) == 0);
  CHECK(text == "cannot make folder " + temporary / ".local" +
                    ": Permission denied: set XDG_STATE_HOME to a folder of your own");
}

TEST_CASE("a record that cannot be written leaves the old one, and nothing else") {
  const test::TemporaryFolder temporary;
  const JobStore store(temporary / "dtrain", "local");
  const auto folder = publish(store, k_job);
  folder.reserve_last_record(16384);
  auto record = example_record();
  record.status.phase = Phase::succeeded;
  // A limit of file size fails as a full disk does.
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  auto* const handler = signal(SIGXFSZ, SIG_IGN);
  const rlimit none{8, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &none);
  CHECK_THROWS_AS(folder.set_record(record), Error);
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, handler);
  CHECK(folder.record()->status.phase == Phase::failed);
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    CHECK(entry.path().filename().string().find(".status.json.") == std::string::npos);
  }
  folder.set_last_record(record);
  CHECK(folder.record()->status.phase == Phase::succeeded);
  CHECK(!std::filesystem::exists(folder.path() + "/.status.spare"));
}

} // namespace
} // namespace dtrain
