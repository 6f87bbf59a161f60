#include "backends/support/user/config_folder.h"

#include "backends/batch/login.h"
#include "backends/slurm/system.h"
#include "submit/errors.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <string>

namespace dtrain {
namespace {

/// A variable of the environment that is put back.
class Setting {
 public:
  Setting(const char* name, const char* value) : name_(name) {
    const char* const before = std::getenv(name);
    is_set_ = before != nullptr;
    before_ = is_set_ ? before : "";
    value == nullptr ? unsetenv(name) : setenv(name, value, 1);
  }
  ~Setting() { is_set_ ? setenv(name_, before_.c_str(), 1) : unsetenv(name_); }
  Setting(const Setting&) = delete;
  Setting& operator=(const Setting&) = delete;

 private:
  const char* name_;
  bool is_set_;
  std::string before_;
};

} // namespace

TEST_CASE("jobs are kept where XDG_STATE_HOME says, or below home, by C++ and by sh alike") {
  const batch::Login login(slurm::queue_system(), "");
  const auto by_sh = [&] { return login.run("printf %s \"$XDG_STATE_HOME/dtrain\""); };
  const Setting home("HOME", "/home/ann");
  const std::string below_home = "/home/ann/.local/state/dtrain";
  for (const char* state : {"", "relative", static_cast<const char*>(nullptr)}) {
    const Setting variable("XDG_STATE_HOME", state);
    CHECK(state_folder() == below_home);
    CHECK(by_sh() == below_home);
  }
  {
    const Setting variable("XDG_STATE_HOME", "/scratch/ann");
    CHECK(state_folder() == "/scratch/ann/dtrain");
    CHECK(by_sh() == "/scratch/ann/dtrain");
  }
  const Setting nothing("XDG_STATE_HOME", nullptr);
  const Setting homeless("HOME", nullptr); // Home is what the user database says.
  CHECK(by_sh() == state_folder().string());
}

} // namespace dtrain
