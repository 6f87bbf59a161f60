#include "trainer/device/numa.h"

#include <doctest/doctest.h>
#include <sched.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "trainer/device/cpu_set.h"

using namespace trainer;

namespace {

/// A machine's sysfs, with a GPU at 0000:1b:00.0.
class Sysfs {
 public:
  Sysfs(const std::string& online, const std::string& node, const std::string& cpus)
      : root_(std::filesystem::temp_directory_path() /
              ("dtrain-numa-" + std::to_string(getpid()))) {
    put("devices/system/node/online", online);
    put("bus/pci/devices/0000:1b:00.0/numa_node", node);
    put("bus/pci/devices/0000:1b:00.0/local_cpulist", cpus);
  }
  ~Sysfs() { std::filesystem::remove_all(root_); }
  Sysfs(const Sysfs&) = delete;
  Sysfs& operator=(const Sysfs&) = delete;

  std::optional<NumaNode> node() const { return numa_node_of("0000:1B:00.0", root_); }
  std::optional<NumaNode> node_of_another() const { return numa_node_of("0000:1C:00.0", root_); }

 private:
  void put(const std::string& path, const std::string& line) const {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << line << "\n";
  }
  std::filesystem::path root_;
};

/// Of the calling thread.
std::vector<int> allowed() {
  cpu_set_t set;
  sched_getaffinity(0, sizeof set, &set);
  std::vector<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(static_cast<std::size_t>(cpu), &set)) {
      cpus.push_back(cpu);
    }
  }
  return cpus;
}

} // namespace

TEST_CASE("a list of CPUs is read as the kernel writes it") {
  CHECK(parse_cpu_list("0-3,8") == std::vector{0, 1, 2, 3, 8});
  CHECK(parse_cpu_list("5") == std::vector{5});
  for (const char* none : {"", "x", "3-1", "1-", "-1", "1,,2", "1;2", "0-99999999"}) {
    CAPTURE(none);
    CHECK(parse_cpu_list(none).empty());
  }
}

TEST_CASE("a GPU's NUMA node is sysfs', whichever way its bus is spelt") {
  const auto found = Sysfs("0-1", "1", "4-5,12").node();
  REQUIRE(found);
  CHECK(found->number == 1);
  CHECK(found->cpus == std::vector{4, 5, 12});
}

TEST_CASE("a machine of one node, or that does not say, has none to choose") {
  CHECK(!Sysfs("0", "0", "0-7").node());
  CHECK(!Sysfs("0-1", "-1", "0-7").node());
  CHECK(!Sysfs("0-1", "1", "").node());
  CHECK(!Sysfs("0-1", "1", "0-7").node_of_another());
  CHECK(!numa_node_of("0000:1B:00.0", "/nowhere"));
}

TEST_CASE("a thread is bound to those of a node's CPUs that it may use, and never to others") {
  std::thread([] {
    const std::vector<int> before = allowed();
    CHECK(CpuSet().count() == static_cast<int>(before.size()));
    CHECK(!bind_to({.number = 1, .cpus = {CPU_SETSIZE + 5}}));
    CHECK(allowed() == before);
    const int own = before.front();
    CHECK(bind_to({.number = 0, .cpus = {own, CPU_SETSIZE - 1}}));
    CHECK(allowed() == std::vector{own});
    CHECK(CpuSet().count() == 1);
    std::thread([&] { CHECK(allowed() == std::vector{own}); }).join(); // As its own threads are.
    CHECK(!bind_to({.number = 1, .cpus = {before.back() == own ? own + 1 : before.back()}}));
    CHECK(allowed() == std::vector{own}); // As whoever started it has narrowed it.
  }).join();
}
