#include "trainer/checkpoint/checkpoint.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>
#include <fstream>

#include "tests/unit/trainer/temp_folder.h"
#include "trainer/cluster/cluster.h"
#include "trainer/data/dataset.h"
#include "trainer/data/loader.h"
#include "trainer/device/cpu/cpu_device.h"
#include "trainer/errors.h"
#include "trainer/strategy/training_step.h"

using namespace trainer;

namespace {

constexpr std::size_t k_batch = 16;
constexpr std::uint64_t k_seed = 11;

/// One rank that trains on synthetic images.
struct Run {
  explicit Run(const ModelOptions& model = {}) : replica(model, {}, device, *communicator) {
    replica.initialize(k_seed);
  }

  void steps(std::int64_t count) {
    TrainingStep training(*communicator, replica, {.buckets = 1 << 16});
    Loader loader(data.train, device, {k_batch, 0, 1, k_seed, progress.position, count});
    for (const Batch& batch : loader) {
      training.run(batch);
      progress.position = loader.position();
    }
    progress.step = replica.optimizer.step();
  }

  void save(const std::string& folder) {
    CheckpointSaver saver;
    saver.save(folder, replica, progress, *communicator);
    saver.wait(*communicator);
  }

  Dataset data = synthetic_dataset(100, 1);
  std::unique_ptr<Communicator> communicator = connect(Cluster{}, {});
  CpuDevice device;
  Replica replica;
  Progress progress{0, 0, k_seed, 100};
};

std::vector<float> copy(std::span<const float> values) { return {values.begin(), values.end()}; }

} // namespace

TEST_CASE(
    "a checkpoint holds what the replica held when it was saved, whatever changes afterwards") {
  const TempFolder folder;
  Run run;
  run.steps(3);
  const std::vector<float> parameters = copy(run.replica.parameters);
  CheckpointSaver saver;
  saver.save(folder.path(), run.replica, run.progress, *run.communicator);
  saver.wait_until_copied();
  run.steps(2);
  saver.wait(*run.communicator);
  Run loaded;
  load_checkpoint(*newest_checkpoint(folder.path()), loaded.replica, run.progress);
  CHECK(copy(loaded.replica.parameters) == parameters);
}

TEST_CASE("training, saving, loading and training on gives the same bits as never stopping") {
  const TempFolder folder;
  Run whole;
  whole.steps(20);
  {
    Run first;
    first.steps(10);
    first.save(folder.path());
  }
  Run second;
  second.progress =
      load_checkpoint(newest_checkpoint(folder.path()).value(), second.replica, second.progress);
  CHECK(second.progress.step == 10);
  second.steps(10);
  CHECK(copy(second.replica.parameters) == copy(whole.replica.parameters));
  for (std::size_t i = 0; i < 2; ++i) {
    CHECK(copy(second.replica.optimizer.moments()[i].values.memory) ==
          copy(whole.replica.optimizer.moments()[i].values.memory));
  }
  CHECK(second.progress.position == whole.progress.position);
}

TEST_CASE("a checkpoint's arenas are read by parts that are cut anywhere") {
  const TempFolder folder;
  Run run;
  run.steps(3);
  run.save(folder.path());
  CheckpointReader reader(newest_checkpoint(folder.path()).value(), run.replica, run.progress);
  REQUIRE(reader.arenas() == 3);
  std::vector<std::vector<float>> arenas = {copy(run.replica.parameters)};
  for (const Optimizer::Moment& moment : run.replica.optimizer.moments()) {
    arenas.push_back(copy(moment.values.memory));
  }
  for (std::size_t arena = 0; arena < arenas.size(); ++arena) {
    std::vector<float> found(arenas[arena].size(), -1.0F);
    constexpr std::size_t k_part = 997;
    for (std::size_t first = 0; first < found.size(); first += k_part) {
      const std::size_t last = std::min(first + k_part, found.size());
      reader.read(arena, {first, last}, std::span(found).subspan(first, last - first));
    }
    CHECK(found == arenas[arena]);
  }
}

TEST_CASE("reading checkpoints again and again, as an evaluator does, leaves no mapping of them") {
  const TempFolder folder;
  Run run;
  run.steps(1);
  run.save(folder.path());
  const auto newest = newest_checkpoint(folder.path()).value();
  for (int i = 0; i < 3; ++i) {
    load_checkpoint(newest, run.replica, run.progress);
  }
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    CAPTURE(line);
    CHECK(line.find(folder.path()) == std::string::npos);
  }
}

TEST_CASE("the newest two checkpoints are kept, and nothing else is touched") {
  const TempFolder folder;
  folder.write("notes.txt", "mine");
  Run run;
  for (int i = 0; i < 4; ++i) {
    run.steps(1);
    run.save(folder.path());
  }
  CHECK(newest_checkpoint(folder.path()) == folder / "step-000000004.safetensors");
  CHECK(std::filesystem::exists(folder / "step-000000003.safetensors"));
  CHECK(!std::filesystem::exists(folder / "step-000000002.safetensors"));
  CHECK(read_file(folder / "notes.txt") == "mine");
}

TEST_CASE(
    "what is saved below damaged checkpoints of higher steps is kept, and they are not counted") {
  const TempFolder folder;
  Run run;
  run.steps(1);
  run.save(folder.path());
  const std::string first = newest_checkpoint(folder.path()).value();
  const auto manifest = [](const std::string& path) {
    return std::filesystem::path(path).replace_extension(".json");
  };
  for (const char* name : {"step-000000002", "step-000000300", "step-000000400"}) {
    const std::string path = folder / fmt::format("{}.safetensors", name);
    std::filesystem::copy(first, path); // Without a manifest it was not finished.
    if (path.find("300") != std::string::npos) {
      std::filesystem::copy(manifest(first), manifest(path));
      std::filesystem::resize_file(path, 1000);
    }
  }
  run.steps(2);
  run.save(folder.path());
  CHECK(std::filesystem::exists(folder / "step-000000003.safetensors"));
  CHECK(std::filesystem::exists(first)); // The one before, which is whole.
  run.steps(1);
  run.save(folder.path());
  CHECK(std::filesystem::exists(folder / "step-000000003.safetensors"));
  CHECK(std::filesystem::exists(folder / "step-000000004.safetensors"));
  CHECK(!std::filesystem::exists(folder / "step-000000002.safetensors"));
  CHECK(!std::filesystem::exists(first));
  CHECK(std::filesystem::exists(folder / "step-000000400.safetensors"));
  CHECK(newest_whole_checkpoint(folder.path(), [](const std::string&) {}) ==
        folder / "step-000000004.safetensors");
}

TEST_CASE(
    "a newest checkpoint that is cut off, flipped or unfinished is told, and the one before used") {
  Run run;
  const auto damaged_by = [&](const auto& damage) {
    const TempFolder folder;
    run.steps(1);
    run.save(folder.path());
    const std::string older = newest_checkpoint(folder.path()).value();
    run.steps(1);
    run.save(folder.path());
    const std::string newest = newest_checkpoint(folder.path()).value();
    std::string told;
    const auto say = [&](const std::string& text) { told += text; };
    CHECK(newest_whole_checkpoint(folder.path(), say) == newest);
    CHECK(told.empty());
    damage(newest);
    CHECK(newest_whole_checkpoint(folder.path(), say) == older);
    CHECK(contains(told, newest));
    return told;
  };
  const auto flip = [](const std::string& path, std::size_t at) {
    std::string bytes = read_file(path);
    bytes[at] = static_cast<char>(bytes[at] ^ 1);
    std::ofstream(path, std::ios::binary) << bytes;
  };
  CHECK(contains(damaged_by([](const auto& path) {
                   std::filesystem::resize_file(path, std::filesystem::file_size(path) / 2);
                 }),
                 "damaged"));
  for (const std::size_t at : {std::size_t{0}, std::size_t{40}, std::size_t{5000}}) {
    CHECK(contains(damaged_by([&](const auto& path) { flip(path, at); }), "damaged"));
  }
  CHECK(contains(damaged_by([](const auto& path) {
                   std::filesystem::remove(std::filesystem::path(path).replace_extension(".json"));
                 }),
                 "not finished"));
  CHECK(contains(damaged_by([](const auto& path) { std::filesystem::remove(path); }), "cannot"));
}

TEST_CASE("what a killed process had begun to write is removed, and nothing else") {
  const TempFolder folder;
  folder.write("step-000000012.safetensors.tmp.99", "x");
  folder.write("step-000000012.json.tmp.99", "x");
  folder.write("config.json.tmp.99", "x");
  folder.write("notes.tmp.99", "mine");
  remove_unfinished(folder.path());
  const std::filesystem::directory_iterator files(folder.path());
  CHECK(std::distance(begin(files), end(files)) == 1);
  CHECK(read_file(folder / "notes.tmp.99") == "mine");
}

TEST_CASE("a checkpoint of another seed or other data is refused") {
  const TempFolder folder;
  Run run;
  run.save(folder.path());
  const std::string path = newest_checkpoint(folder.path()).value();
  Progress other = run.progress;
  other.seed = 12;
  CHECK(contains(message_of<UsageError>([&] { load_checkpoint(path, run.replica, other); }),
                 "saved with --seed=11"));
  other = run.progress;
  other.samples = 60000;
  CHECK(contains(message_of<UsageError>([&] { load_checkpoint(path, run.replica, other); }),
                 "saved with 100 training samples"));
}

TEST_CASE("a checkpoint with a tensor missing, misshapen or too many is refused, and it is named") {
  const TempFolder folder;
  Run saved({.hidden = {64, 64}});
  saved.save(folder.path());
  const std::string path = newest_checkpoint(folder.path()).value();
  const auto said = [&](const std::vector<std::size_t>& hidden) {
    Run other({.hidden = hidden});
    return message_of<DataError>([&] { load_checkpoint(path, other.replica, other.progress); });
  };
  CHECK(said({64, 64}).empty());
  CHECK(contains(said({64}), path + ": has a tensor "));
  CHECK(contains(said({64, 64, 64}), path + ": no tensor "));
  CHECK(contains(said({64, 32}), "output.weight has shape [10, 64] where the model's is [10, 32]"));
}

TEST_CASE("a checkpoint's tensor that has a name of the model's behind one of its own is refused") {
  const TempFolder folder;
  Run run;
  run.save(folder.path());
  SafeTensors content = read_checkpoint(newest_checkpoint(folder.path()).value());
  content.tensors.push_back(content.tensors.front());
  std::string& name = content.tensors.back().name;
  name = "average." + name;
  write_safetensors(folder / "more.safetensors", content.metadata, content.tensors);
  CHECK(message_of<DataError>([&] {
          load_checkpoint(folder / "more.safetensors", run.replica, run.progress);
        }) == folder / "more.safetensors: has a tensor " + name +
                  ", which neither the model nor its optimizer has");
}

TEST_CASE("a folder without checkpoints has no newest") {
  const TempFolder folder;
  folder.write("step-.safetensors", "");
  folder.write("step-12.safetensors.tmp.99", "");
  CHECK(!newest_checkpoint(folder.path()));
  CHECK(!newest_checkpoint(folder / "missing"));
}

TEST_CASE("no checkpoint is written of what is no number, and its tensor is named") {
  const TempFolder folder;
  Run run;
  run.replica.parameters.data()[0] = NAN;
  CHECK(contains(message_of<Error>([&] { run.save(folder.path()); }), "output.bias"));
  CHECK(!newest_checkpoint(folder.path()));
}
