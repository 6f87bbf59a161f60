#include "trainer/options/options.h"

#include <doctest/doctest.h>

#include <set>
#include <string>

using namespace dtrain;

TEST_CASE("the trainer has no flag twice") {
  trainer::TrainerOptions options;
  std::set<std::string> seen = {"-h", "--help"};
  for (const auto& option : trainer::trainer_command(options).options) {
    auto flags = option.flag_list();
    flags.insert(flags.end(), option.aliases.begin(), option.aliases.end());
    for (const auto& flag : flags) {
      CAPTURE(flag);
      CHECK((option.positional || seen.insert(flag).second));
    }
  }
}
