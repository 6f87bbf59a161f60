// Checkpoints that ranks save together, each its own part.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "tests/unit/trainer/collectives/ranks.h"
#include "tests/unit/trainer/temp_folder.h"
#include "tests/unit/waiting.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/checkpoint_file.h"
#include "trainer/device/cpu/cpu_device.h"
#include "trainer/errors.h"

using namespace trainer;

namespace {

constexpr std::uint64_t k_seed = 11;

/// Tensors in panels that are not full, turned ones, and rows.
const std::vector<ModelOptions>& models() {
  static const std::vector<ModelOptions> all = [] {
    ModelOptions gpt2{.name = "gpt2"};
    gpt2.transformer = {
        .layers = 2, .hidden = 32, .heads = 2, .inner = 48, .max_length = 16, .vocabulary = 101};
    ModelOptions mlp{.hidden = {100, 40}};
    mlp.height = mlp.width = 28;
    mlp.classes = 10;
    return std::vector{mlp, gpt2};
  }();
  return all;
}

Progress progress_at(std::int64_t step) { return {step, 48, k_seed, 300, 48}; }

/// As no training would leave it, and so that each value is known: arena after arena, filled up
/// with zeros.
std::vector<std::vector<float>> state_of(const Replica& replica, float scale) {
  const TensorTable& table = replica.model->tensors();
  std::vector<std::vector<float>> arenas;
  for (std::size_t i = 0; i <= replica.optimizer.moments().size(); ++i) {
    std::vector<float> any(table.arena_size());
    for (std::size_t at = 0; at < any.size(); ++at) {
      any[at] = scale * static_cast<float>(i + 1) * static_cast<float>(at);
    }
    std::vector<float>& arena = arenas.emplace_back(table.arena_size());
    table.import_arena(table.export_arena(any), arena);
  }
  return arenas;
}

/// What of an arena a rank owns, one behind the other.
std::vector<float> own_of(const std::vector<float>& arena, const std::vector<ArenaRange>& own) {
  std::vector<float> values;
  for (const ArenaRange& range : own) {
    values.insert(values.end(), arena.begin() + static_cast<std::ptrdiff_t>(range.first),
                  arena.begin() + static_cast<std::ptrdiff_t>(range.last));
  }
  return values;
}

/// Calls `body` on each rank with its replica.
void with_replicas(int ranks, int stage, const ModelOptions& model, const auto& body,
                   const Offload& offload = {}) {
  test::run_ranks_cleanly(ranks, {}, [&](Communicator& communicator) {
    CpuDevice device;
    Replica replica(model, {}, device, communicator, {stage, 1 << 14}, offload);
    replica.attach(communicator);
    body(replica, communicator);
  });
}

void fill(Replica& replica, Communicator& communicator, float scale) {
  const std::vector<std::vector<float>> state = state_of(replica, scale);
  const std::vector<ArenaRange> own = replica.sharding.stage == 0
                                          ? std::vector{ArenaRange{0, replica.parameters.size()}}
                                          : replica.shards(communicator).own();
  const OwnChunks chunks = replica.own_chunks();
  std::size_t behind = 0;
  for (const ArenaRange& range : own) { // The rest is not the rank's to save.
    chunks.values.write(replica.device, chunks.is_arena ? range.first : behind,
                        std::span(state[0]).subspan(range.first, range.size()));
    behind += range.size();
  }
  for (std::size_t i = 0; i < replica.optimizer.moments().size(); ++i) {
    replica.optimizer.moments()[i].values.write(replica.device, 0, own_of(state[i + 1], own));
  }
}

/// Saves `steps` one after the other, where a rank `takes_part`; what is in them is of `scale`.
void save(
    const std::string& folder, const std::vector<std::int64_t>& steps, int ranks, int stage,
    float scale = 1, const Offload& offload = {}, bool meets = true,
    const std::function<bool(int rank)>& takes_part = [](int /*rank*/) { return true; }) {
  with_replicas(
      ranks, stage, models()[0],
      [&](Replica& replica, Communicator& communicator) {
        fill(replica, communicator, scale);
        CheckpointSaver saver(!offload.is_to_files());
        if (meets && stage > 0) {
          CHECK(saver.meet(folder, communicator));
        }
        for (const std::int64_t step : steps) {
          if (takes_part(communicator.rank())) {
            saver.save(folder, replica, progress_at(step), communicator);
          }
        }
        if (takes_part(0)) {
          saver.wait(communicator);
        }
        communicator.barrier("saved");
      },
      offload);
}

std::string part_of(const std::string& path, int rank, int ranks) {
  return fmt::format("{}.rank-{:05}-of-{:05}.safetensors",
                     path.substr(0, path.size() - std::string(".json").size()), rank, ranks);
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

} // namespace

TEST_CASE(
    "what ranks have saved in parts is read bit for bit by any number of ranks, at any stage") {
  for (const ModelOptions& model : models()) {
    for (const auto& saved : {std::pair(2, 1), {4, 2}, {3, 3}}) {
      const int ranks = saved.first;
      CAPTURE(model.name);
      CAPTURE(ranks);
      const TempFolder folder;
      with_replicas(ranks, saved.second, model, [&](Replica& replica, Communicator& communicator) {
        fill(replica, communicator, 1);
        CheckpointSaver saver;
        CHECK(saver.meet(folder.path(), communicator));
        saver.save(folder.path(), replica, progress_at(7), communicator);
        saver.wait(communicator);
      });
      const std::string path = newest_checkpoint(folder.path()).value();
      CHECK(path == folder / "step-000000007.json");
      CHECK(what_is_wrong(path).empty());
      CHECK(names_in(folder.path()).size() == static_cast<std::size_t>(ranks) + 1);
      for (const auto& [readers, their_stage] : {std::pair(1, 0), {2, 3}, {4, 1}}) {
        with_replicas(readers, their_stage, model,
                      [&](Replica& replica, Communicator& communicator) {
                        CheckpointReader reader(path, replica, progress_at(0));
                        CHECK(reader.progress().step == 7);
                        const std::vector<std::vector<float>> state = state_of(replica, 1);
                        REQUIRE(reader.arenas() == state.size());
                        for (std::size_t i = 0; i < state.size(); ++i) {
                          for (const ArenaRange& own : replica.shards(communicator).own()) {
                            std::vector<float> found(own.size());
                            reader.read(i, own, found);
                            CHECK(found == own_of(state[i], {own}));
                          }
                        }
                      });
      }
    }
  }
}

TEST_CASE("parts hold what the one file of all of them does, tensor by tensor, row-major") {
  for (const bool is_in_files : {false, true}) {
    const TempFolder parts;
    const TempFolder whole;
    const TempFolder fast;
    const Offload offload = is_in_files ? Offload{fast.path(), fast.path()} : Offload{};
    save(parts.path(), {1, 2}, 3, 3, 1, offload);
    save(whole.path(), {2}, 3, 3, 1, offload, false);
    const SafeTensors one = read_checkpoint(whole / "step-000000002.safetensors");
    const SafeTensors other = read_checkpoint(parts / "step-000000002.json");
    REQUIRE(one.tensors.size() == other.tensors.size());
    for (std::size_t i = 0; i < one.tensors.size(); ++i) {
      CHECK(one.tensors[i].name == other.tensors[i].name);
      CHECK(one.tensors[i].shape == other.tensors[i].shape);
      CHECK(one.tensors[i].values == other.tensors[i].values);
    }
    for (const auto& [key, value] : one.metadata) {
      CHECK(other.metadata.at(key) == value);
    }
  }
}

TEST_CASE(
    "a part that is lost, damaged or of an earlier try is named, and the one before is used") {
  const TempFolder earlier;
  save(earlier.path(), {2}, 2, 1, 3);
  const auto damaged_by = [&](const auto& damage) {
    const TempFolder folder;
    save(folder.path(), {1, 2}, 2, 1);
    const std::string newest = folder / "step-000000002.json";
    std::string told;
    const auto say = [&](const std::string& text) { told += text; };
    CHECK(newest_whole_checkpoint(folder.path(), say) == newest);
    CHECK(told.empty());
    damage(part_of(newest, 1, 2));
    CHECK(newest_whole_checkpoint(folder.path(), say) == folder / "step-000000001.json");
    CHECK(contains(told, newest));
    CHECK(contains(told, "step-000000002.rank-00001-of-00002"));
    return told;
  };
  CHECK(
      contains(damaged_by([](const auto& part) { std::filesystem::remove(part); }), "cannot read"));
  CHECK(contains(damaged_by([](const auto& part) {
                   std::string bytes = read_file(part);
                   bytes[bytes.size() / 2] ^= 1;
                   std::ofstream(part, std::ios::binary) << bytes;
                 }),
                 "damaged"));
  CHECK(contains(damaged_by([&](const auto& part) {
                   std::filesystem::copy_file(
                       earlier / std::filesystem::path(part).filename().string(), part,
                       std::filesystem::copy_options::overwrite_existing);
                 }),
                 "damaged"));
}

TEST_CASE("a part whose metadata has a shape that is no list of whole numbers is damaged") {
  for (const std::string_view shape : {"[10.5]", "10", R"({\"of\":10})", "null"}) {
    CAPTURE(shape);
    const TempFolder folder;
    save(folder.path(), {1}, 2, 1);
    const std::string path = folder / "step-000000001.json";
    for (const int rank : {0, 1}) {
      const std::string part = part_of(path, rank, 2);
      std::string bytes = read_file(part);
      std::uint64_t header = 0;
      std::memcpy(&header, bytes.data(), sizeof header);
      const std::string key = R"(\"shape\":)"; // As it is in a string.
      const std::size_t at = bytes.find(key) + key.size();
      REQUIRE(at < header);
      const std::size_t size = bytes.find(']', at) + 1 - at;
      bytes.replace(at, size, shape);
      header = header + shape.size() - size;
      std::memcpy(bytes.data(), &header, sizeof header);
      std::ofstream(part, std::ios::binary) << bytes;
    }
    CHECK(contains(message_of<DataError>([&] { CheckpointFile{path}; }), "damaged: the shape of"));
  }
}

TEST_CASE("a checkpoint whose parts are not all there is none, whatever an earlier try has left" *
          unit::waits()) {
  const TempFolder folder;
  save(folder.path(), {3}, 2, 2);
  const auto only = [](int which) { return [=](int rank) { return rank == which; }; };
  save(folder.path(), {5}, 2, 2, 3, {}, true, only(1));
  CHECK(has_manifest(part_of(folder / "step-000000005.json", 1, 2)));
  // As if rank 1 had been killed: rank 0 gives up once it ends.
  with_replicas(2, 2, models()[0], [&](Replica& replica, Communicator& communicator) {
    fill(replica, communicator, 1);
    CheckpointSaver saver;
    CHECK(saver.meet(folder.path(), communicator));
    if (communicator.rank() == 0) {
      saver.save(folder.path(), replica, progress_at(5), communicator);
    }
  });
  std::string told;
  CHECK(newest_whole_checkpoint(folder.path(), [&](const std::string& text) { told += text; }) ==
        folder / "step-000000003.json");
  CHECK(contains(told, "step-000000005.json: was not finished"));
  save(folder.path(), {5}, 2, 2);
  CHECK(what_is_wrong(folder / "step-000000005.json").empty());
}

TEST_CASE(
    "checkpoints in parts are kept as many as asked, and older ones go with all their parts") {
  const TempFolder folder;
  save(folder.path(), {1}, 3, 1); // Of more ranks.
  save(folder.path(), {2, 3, 4}, 2, 3);
  CHECK(names_in(folder.path()) ==
        std::vector<std::string>{
            "step-000000003.json", "step-000000003.rank-00000-of-00002.safetensors",
            "step-000000003.rank-00001-of-00002.safetensors", "step-000000004.json",
            "step-000000004.rank-00000-of-00002.safetensors",
            "step-000000004.rank-00001-of-00002.safetensors"});
}

TEST_CASE("a manifest whose parts are no files of its folder is none") {
  const TempFolder folder;
  const std::string nested = std::string(1'000'000, '[') + std::string(1'000'000, ']');
  for (const std::string& part : {std::string(R"({"file": ".."})"), std::string(R"({"file": "."})"),
                                  std::string(R"({"file": ""})"), std::string(R"({"file": "a/"})"),
                                  std::string(R"({"file": 1})"), R"({"file": )" + nested + "}"}) {
    const std::string path =
        folder.write("step-000000003.json", R"({"format": "dtrain-1", "parts": [)" + part + "]}");
    CHECK(what_is_wrong(path) == "was not finished: its manifest is missing or damaged");
  }
}

TEST_CASE("a step that is saved again replaces what was there of it, in parts or in one file") {
  const TempFolder folder;
  const auto saved = [&](int ranks, int stage) {
    save(folder.path(), {4}, ranks, stage, static_cast<float>(stage + 1));
    const std::string newest = newest_checkpoint(folder.path()).value();
    CHECK(what_is_wrong(newest).empty());
    const SafeTensors content = read_checkpoint(newest);
    CHECK(content.tensors[0].values[1] == static_cast<float>(stage + 1));
    return names_in(folder.path()).size();
  };
  CHECK(saved(3, 1) == 4);
  CHECK(saved(2, 2) == 3);
  CHECK(saved(2, 0) == 2);
  CHECK(saved(2, 3) == 3);
}

TEST_CASE("ranks that do not all see the folder have rank 0 save all in one file") {
  const TempFolder folder;
  const TempFolder other;
  with_replicas(2, 1, models()[0], [&](Replica& replica, Communicator& communicator) {
    fill(replica, communicator, 1);
    const std::string own = communicator.rank() == 0 ? folder.path() : other.path();
    CheckpointSaver saver;
    CHECK(!saver.meet(own, communicator));
    saver.save(own, replica, progress_at(4), communicator);
    saver.wait(communicator);
  });
  CHECK(names_in(folder.path()) ==
        std::vector<std::string>{"step-000000004.json", "step-000000004.safetensors"});
  CHECK(names_in(other.path()).empty());
}

TEST_CASE("a value that is no number in any rank's part keeps the checkpoint from being finished" *
          unit::waits()) {
  const TempFolder folder;
  const std::vector<std::string> thrown = test::run_ranks(2, {}, [&](Communicator& communicator) {
    CpuDevice device;
    Replica replica(models()[0], {}, device, communicator, {1, 1 << 14});
    replica.attach(communicator);
    CheckpointSaver saver;
    saver.meet(folder.path(), communicator);
    if (communicator.rank() == 1) {
      replica.optimizer.moments()[0].values.memory[0] = NAN;
    }
    saver.save(folder.path(), replica, progress_at(4), communicator);
    saver.wait(communicator);
    communicator.barrier("saved");
  });
  CHECK(contains(thrown[1], "adam.m."));
  CHECK(contains(thrown[1], "no finite number"));
  CHECK(!thrown[0].empty());
  CHECK(!newest_checkpoint(folder.path()));
}
