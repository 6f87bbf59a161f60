// Functions of templates/batch/ranks.sh, each by itself.
#include "backends/support/os/subprocess.h"
#include "submit/template/render.h"
#include "tests/unit/backends/temporary_folder.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <string>

namespace dtrain::batch {
namespace {

/// "NAME() { … }" of it.
std::string function(const std::string& name) {
  const std::string_view text = builtin_template("batch/ranks.sh").text;
  const auto begin = text.find("\n" + name + "() {\n");
  REQUIRE(begin != std::string_view::npos);
  return std::string(text.substr(begin, text.find("\n}\n", begin) + 3 - begin));
}

CommandResult run(const std::string& script) { return run_command({.argv = {"sh", "-c", script}}); }

} // namespace

TEST_CASE("a queue that never says where its nodes are is asked for ten minutes, not for ever") {
  const CommandResult result =
      run("waited=0\nsleep() { waited=$((waited + $1)); [ $waited -le 3600 ] || exit 9; }\n"
          "ask_nodes() { return 1; }\n" +
          function("node_addresses") + "node_addresses\ncode=$?\necho \"$waited s\"\nexit $code\n");
  CHECK(result.ending.exit_code == 1);
  CHECK(result.out == "590 s\n");
  CHECK(result.errors ==
        "dtrain: cannot look up the job's nodes: the queue has not answered for ten minutes\n");
}

TEST_CASE("a queue that fails and then answers starts the job") {
  const CommandResult result = run(
      "sleep() { touched=yes; }\n"
      "getent() { [ \"$2\" = known ]; }\n"
      "ask_nodes() { [ -n \"$touched\" ] && printf '%s\\n' 'known 10.0.0.1' 'other 10.0.0.2'; }\n" +
      function("node_addresses") + "node_addresses\n");
  CHECK(result.ending.exit_code == 0);
  CHECK(result.out == "known known\nother 10.0.0.2\n");
}

TEST_CASE("of parts of GPUs the whole ones are asked about, as nvidia-smi takes no part's name") {
  const test::TemporaryFolder folder;
  const std::string smi = folder.write("nvidia-smi", R"sh(#!/bin/sh
case $1$2 in
  -L)
    echo "GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-a)"
    echo "  MIG 3g.20gb     Device  0: (UUID: MIG-a0)"
    echo "  MIG 3g.20gb     Device  1: (UUID: MIG-a1)"
    echo "GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-b)"
    echo "  MIG 7g.40gb     Device  0: (UUID: MIG-GPU-b/7/0)" ;;
  -iGPU-a | -i0) echo "0, NVIDIA A100-SXM4-40GB, 0, No, No, [N/A]" ;;
  -iGPU-a,GPU-b) echo "1, NVIDIA A100-SXM4-40GB, 7, No, No, [N/A]" ;;
  *)
    echo "No devices were found"
    exit 6 ;;
esac
)sh");
  std::filesystem::permissions(smi, std::filesystem::perms::owner_all);
  const auto check = [&](const std::string& devices) {
    return run("PATH=" + folder.path() + ":$PATH\nthis_node=n1\nCUDA_VISIBLE_DEVICES=" + devices +
               "\nleave() { exit \"$1\"; }\n" + function("whole_gpus") +
               function("need_good_gpus") + "need_good_gpus\n");
  };
  CHECK(check("MIG-a1,MIG-a0").ending.exit_code == 0);
  CHECK(check("0").ending.exit_code == 0);
  CHECK(check("MIG-unheard-of").errors.find("nvidia-smi failed: 6") != std::string::npos);
  const CommandResult ill = check("MIG-a0,MIG-GPU-b/7/0");
  CHECK(ill.ending.exit_code == 1);
  CHECK(ill.errors.find("dtrain: n1 has a faulty GPU: 1, NVIDIA A100-SXM4-40GB, 7, No") == 0);
}

} // namespace dtrain::batch
