#include "trainer/options/options.h"

#include <doctest/doctest.h>

#include <set>
#include <string>

#include "tests/unit/trainer/temp_folder.h"
#include "trainer/errors.h"

namespace {

using Words = std::vector<std::string>;

/// The rates of the first 40 updates.
std::vector<double> rates_of(const Words& flags) {
  const trainer::TrainerOptions options = trainer::parse_trainer_options(flags);
  trainer::LearningRate rate = options.schedule;
  rate.peak = options.learning_rate;
  rate.schedule = trainer::parse_schedule(options.lr_schedule);
  rate.fall = rate.fall > 0 ? rate.fall : rate.rise; // As a run has it.
  std::vector<double> rates;
  for (int update = 0; update < 40; ++update) {
    rates.push_back(rate.at(update));
  }
  return rates;
}

std::string refused(const Words& flags) {
  return message_of<trainer::UsageError>([&] { trainer::parse_trainer_options(flags); });
}

} // namespace

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

TEST_CASE("each flag of a schedule gives the rates that DeepSpeed's key gives") {
  struct Base {
    Words flags;
    std::string file; ///< That says the same.
  };
  const std::string cycle_params = R"("cycle_min_lr": 0.1, "cycle_max_lr": 0.2,
                                      "cycle_first_step_size": 8)";
  const Words cycle_flags = {"--lr-schedule=one-cycle", "--warmup-from=0.1", "--learning-rate=0.2",
                             "--warmup-steps=8"};
  Words decaying_flags = cycle_flags;
  decaying_flags.insert(decaying_flags.end(), {"--cycle-decay-steps=4", "--cycle-decay-rate=0.5"});
  const Base cycle{cycle_flags, R"("type": "OneCycle", "params": {)" + cycle_params};
  const Base decaying{decaying_flags, R"("type": "OneCycle", "params": {"decay_step_size": 4,
                                         "decay_lr_rate": 0.5, )" +
                                          cycle_params};
  const Base decay{{"--lr-schedule=warmup-decay", "--learning-rate=0.001", "--warmup-steps=5"},
                   R"("type": "WarmupDecayLR", "params": {"warmup_num_steps": 5)"};
  const Base cosine{{"--lr-schedule=warmup-cosine", "--learning-rate=0.001", "--warmup-steps=5"},
                    R"("type": "WarmupCosineLR", "params": {"warmup_num_steps": 5)"};
  struct Flag {
    const Base* base;
    std::string flag;
    std::string key;
  };
  const auto check = [](const Base& base, const Flag& flag) {
    CAPTURE(flag.flag);
    const TempFolder folder;
    Words flags = base.flags;
    const std::vector<double> before = rates_of(flags);
    flags.push_back(flag.flag);
    const std::vector<double> found = rates_of(flags);
    CHECK(found != before);
    // Of this parameter the last that is given counts, where the base has it too.
    std::string params = base.file;
    const std::string name = flag.key.substr(0, flag.key.find(':') + 1);
    if (const std::size_t at = params.find(name); at != std::string::npos) {
      params.erase(at, params.find(',', at) + 1 - at);
    }
    const std::string path =
        folder.write("ds.json", R"({"optimizer": {"type": "Adam"}, "scheduler": {)" + params +
                                    ", " + flag.key + "}}}");
    CHECK(found == rates_of({"--config=" + path}));
    CHECK(found == rates_of({"--config=" + folder.write("base.json", R"({"optimizer": {"type": )"
                                                                     R"("Adam"}, "scheduler": {)" +
                                                                         base.file + "}}}"),
                             flag.flag}));
  };
  for (const Flag& flag :
       {Flag{&decay, "--total-steps=30", R"("total_num_steps": 30)"},
        Flag{&cosine, "--total-steps=30", R"("total_num_steps": 30)"},
        Flag{&cosine, "--cosine-to=0.25", R"("cos_min_ratio": 0.25)"},
        Flag{&cycle, "--cycle-down-steps=20", R"("cycle_second_step_size": 20)"},
        Flag{&cycle, "--cycle-down-stairs=3", R"("cycle_second_stair_count": 3)"},
        Flag{&decaying, "--cycle-decay-steps=2", R"("decay_step_size": 2)"},
        Flag{&decaying, "--cycle-decay-rate=0.9", R"("decay_lr_rate": 0.9)"}}) {
    check(*flag.base, flag);
  }
  // Stairs up are those down too, unless the file has said something.
  const TempFolder folder;
  Words stairs = cycle.flags;
  stairs.emplace_back("--cycle-stairs=3");
  CHECK(rates_of(stairs) != rates_of(cycle.flags));
  CHECK(rates_of(stairs) ==
        rates_of(
            {"--config=" + folder.write("ds.json", R"({"scheduler": {)" + cycle.file +
                                                       R"(, "cycle_first_stair_count": 3}}})")}));
}

TEST_CASE("flags of another schedule, or of half a decay, are refused") {
  CHECK(refused({"--total-steps=9"}) == "--total-steps: --lr-schedule=cosine does not have it; use "
                                        "--lr-schedule=warmup-decay or warmup-cosine");
  CHECK(refused({"--cycle-stairs=9", "--lr-schedule=warmup"}) ==
        "--cycle-stairs: --lr-schedule=warmup does not have it; use --lr-schedule=one-cycle");
  CHECK(contains(refused({"--cycle-decay-rate=9", "--lr-schedule=one-cycle"}),
                 "--cycle-decay-rate needs the other"));
  CHECK(contains(refused({"--cycle-decay-steps=9", "--lr-schedule=one-cycle"}),
                 "--cycle-decay-steps needs the other"));
}

TEST_CASE("consecutive hysteresis is of fp16's loss scale, by flag or by key") {
  const TempFolder folder;
  const std::string config = "--config=" + folder.write("ds.json", R"({"fp16": {"enabled": true,
                                                          "consecutive_hysteresis": true}})");
  const auto by_flag =
      trainer::parse_trainer_options({"--precision=fp16", "--consecutive-hysteresis"});
  CHECK(by_flag.loss_scale.is_consecutive == 1);
  CHECK(by_flag.loss_scale == trainer::parse_trainer_options({config}).loss_scale);
  CHECK(contains(refused({"--consecutive-hysteresis"}), "need --precision=fp16"));
}
