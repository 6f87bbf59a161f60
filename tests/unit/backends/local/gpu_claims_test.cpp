#include "backends/local/gpu_claims.h"

#include "../temporary_folder.h"
#include "backends/local/gpus.h"
#include "backends/support/os/files.h"
#include "submit/errors.h"
#include "tests/unit/variable.h"

#include <doctest/doctest.h>

#include <fcntl.h>
#include <pwd.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <climits>
#include <exception>
#include <filesystem>
#include <functional>

namespace dtrain {
namespace {

using Names = std::vector<std::string>;

using unit::Variable;

struct Fixture {
  test::TemporaryFolder temporary;
  std::string path = temporary / "claims";
  Variable registry{"DTRAIN_GPU_CLAIMS", path.c_str()};
  GpuUser user{"no-such-uid", ""};
};

TEST_CASE_FIXTURE(Fixture, "a rank's devices are its own until its claim is given up") {
  const Names all{"0", "GPU-a", "MIG-GPU-b/1/0"};
  CHECK(unclaimed_gpus(all) == all);
  CHECK(!std::filesystem::exists(path));
  auto claims = claim_gpus({{"0"}, {}, {"MIG-GPU-b/1/0"}}, 0, user);
  REQUIRE(claims);
  CHECK(unclaimed_gpus(all) == Names{"GPU-a"});
  CHECK(!claim_gpus({{"0"}}, 0, user));
  CHECK(!claim_gpus({{"GPU-a"}, {"0"}}, 0, user));
  CHECK(unclaimed_gpus(all) == Names{"GPU-a"}); // Refused as a whole.
  claims->pop_back();
  CHECK(unclaimed_gpus(all) == Names{"GPU-a", "MIG-GPU-b/1/0"});
  claims.reset();
  CHECK(unclaimed_gpus(all) == all);
}

TEST_CASE("a GPU's UUID, or the first of it, is said as its index") {
  const test::TemporaryFolder driver;
  for (const char* bus : {"0000:9a:00.0", "0000:1b:00.0"}) {
    std::filesystem::create_directory(driver / bus);
  }
  driver.write("0000:1b:00.0/information",
               "Model: \t X\nGPU UUID: \t GPU-aa-1\nVideo BIOS: \t 1\n");
  driver.write("0000:9a:00.0/information", "Model: \t X\nGPU UUID: \t GPU-bb-2\n");
  CHECK(gpu_index("GPU-aa-1", driver.path()) == "0");
  CHECK(gpu_index("GPU-bb", driver.path()) == "1");
  for (const char* other : {"0", "1", "GPU-cc-3", "GPU-aa-11", "MIG-GPU-aa-1/1/0"}) {
    CHECK(gpu_index(other, driver.path()) == other);
    CHECK(gpu_index(other, driver / "none") == other);
  }
}

TEST_CASE_FIXTURE(Fixture, "where devices are shared, the first to have one keeps it") {
  const auto first = claim_gpus({{"0"}}, 0, user);
  auto second = claim_gpus({{"0", "1"}}, 1, user);
  REQUIRE(second);
  CHECK(second->front().devices() == Names{"0", "1"});
  second.reset();
  CHECK(unclaimed_gpus({"0", "1"}) == Names{"1"});
}

TEST_CASE_FIXTURE(Fixture, "a device is nobody's while a process of its last job does not end") {
  std::filesystem::create_directory(path);
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  temporary.write("claims/gpu-1.abc", "lost-uid\n\n");
  temporary.write("claims/abc", ""); // Of a supervisor that was killed.
  std::vector<ProcessId> left{this_process()};
  const auto end = [&](const std::string& uid, const std::string&) {
    CHECK(uid == "lost-uid");
    return left;
  };
  const auto claim = [&] { return claim_gpus({{"1"}}, 0, user, end); };
  for (int again = 0; again < 2; ++again) {
    CHECK_THROWS_WITH_AS(claim(),
                         doctest::Contains("processes of the job that had GPU 1 last survived "
                                           "SIGKILL: "),
                         EngineError);
  }
  left.clear();
  CHECK(claim());
  CHECK(!std::filesystem::exists(path + "/abc"));
  CHECK(!std::filesystem::exists(path + "/gpu-1.abc"));
}

TEST_CASE_FIXTURE(Fixture, "a claim leaves nothing where one of its files cannot be made") {
  const Names all{"0", std::string(NAME_MAX, 'x')};
  CHECK_THROWS_WITH_AS(claim_gpus({all}, 0, user), doctest::Contains("chmod 1777"), EngineError);
  CHECK(unclaimed_gpus(all) == all);
  std::filesystem::remove(path + "/lock");
  CHECK(std::filesystem::is_empty(path));
}

/// In whose name a child process runs: nobody.
constexpr uid_t k_other = 65534;

TEST_CASE_FIXTURE(Fixture, "a device of another user's rank is not free, and it is said whose" *
                               doctest::skip(geteuid() != 0)) {
  const auto own = claim_gpus({{"0"}}, 0, user);
  const auto as_other = [&](const std::function<bool()>& does) {
    const pid_t child = fork();
    if (child == 0) {
      try {
        _exit(setuid(k_other) == 0 && does() ? 0 : 1);
      } catch (const std::exception& error) { // Not to doctest: it would go on with other tests.
        write_all(STDERR_FILENO, error.what());
        _exit(1);
      }
    }
    int status = 1;
    return waitpid(child, &status, 0) == child && status == 0;
  };
  const auto end = [](const std::string&, const std::string&) -> std::vector<ProcessId> {
    throw Error("a job that another user's file names is not to be ended");
  };
  using std::filesystem::perms;
  std::filesystem::permissions(temporary.path(), perms::group_exec | perms::others_exec,
                               std::filesystem::perm_options::add);
  CHECK(as_other([&] {
    return unclaimed_gpus({"0", "1"}) == Names{"1"} && other_users_of({"0", "1"}).size() == 1 &&
           !claim_gpus({{"0"}}, 0, user, end) && claim_gpus({{"1"}}, 0, user, end);
  }));
  // What the child's claim has left, as of one that was killed.
  temporary.write("claims/gpu-1.abc", "lost-uid\n\n");
  temporary.write("claims/abc", "");
  for (const char* file : {"claims/gpu-1.abc", "claims/abc"}) {
    REQUIRE(chown((temporary / file).c_str(), k_other, k_other) == 0);
  }
  Fd lock(open((path + "/abc").c_str(), O_RDONLY | O_CLOEXEC));
  REQUIRE(flock(lock.get(), LOCK_EX | LOCK_NB) == 0);
  CHECK(unclaimed_gpus({"0", "1"}).empty());
  const passwd* other = getpwuid(k_other);
  CHECK(other_users_of({"0", "1"}) ==
        std::set<std::string>{other == nullptr ? "user 65534" : other->pw_name});
  lock.reset();
  CHECK(claim_gpus({{"1"}}, 0, user, end));
  CHECK(std::filesystem::exists(path + "/abc"));
}

/// As templates/ssh/agent.sh does it.
TEST_CASE_FIXTURE(Fixture, "a claim of a rank over ssh counts as long as it is held") {
  std::filesystem::create_directory(path);
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  temporary.write("claims/gpu-1.abc", "\n");
  Fd lock(open((path + "/abc").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  REQUIRE(flock(lock.get(), LOCK_EX | LOCK_NB) == 0);
  CHECK(unclaimed_gpus({"0", "1"}) == Names{"0"});
  CHECK(!claim_gpus({{"1"}}, 0, user));
  lock.reset(); // Killed: its file stays.
  CHECK(unclaimed_gpus({"0", "1"}) == Names{"0", "1"});
  CHECK(claim_gpus({{"1"}}, 0, user));
}

TEST_CASE("a CUDA_VISIBLE_DEVICES that is there already is kept to, and DTRAIN_LOCAL_GPUS counts") {
  const Variable count("DTRAIN_LOCAL_GPUS", "2");
  {
    const Variable visible("CUDA_VISIBLE_DEVICES", nullptr);
    CHECK(find_gpus() == Names{"0", "1"});
  }
  const Variable visible("CUDA_VISIBLE_DEVICES", "7,GPU-a,3");
  CHECK(find_gpus() == Names{"7", "GPU-a"});
  const Variable wrong("DTRAIN_LOCAL_GPUS", "two");
  CHECK_THROWS_AS(find_gpus(), UsageError);
}

} // namespace
} // namespace dtrain
