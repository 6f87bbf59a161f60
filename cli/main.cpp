#include "backends/engine.h"
#include "backends/support/os/process.h"
#include "cli/program.h"
#include "cli/settings/settings.h"
#include "submit/options/this_program.h"

#include <ctime>

#include <unistd.h>

namespace {

dtrain::Time now() {
  timespec time = {};
  clock_gettime(CLOCK_REALTIME, &time);
  return time.tv_sec * dtrain::k_second + time.tv_nsec;
}

} // namespace

int main(int argc, char** argv) {
  dtrain::reset_signals();
  dtrain::name_process();
  const std::vector<std::string> words(argv + (argc > 0 ? 1 : 0), argv + argc);
  if (const auto* helper = words.empty() ? nullptr : dtrain::find_helper(words[0])) {
    return helper->run({words.begin() + 1, words.end()});
  }
  dtrain::Stream out(STDOUT_FILENO, dtrain::Terminal::of(STDOUT_FILENO));
  dtrain::Stream err(STDERR_FILENO, dtrain::Terminal::of(STDERR_FILENO));
  dtrain::Context context{out, err, dtrain::make_backend, now, dtrain::default_config_file()};
  return dtrain::run_program(context, words);
}
