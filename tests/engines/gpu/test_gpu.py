"""The trainer on a real GPU, with the plug-in that nvcc compiled."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

import idx_data
import trainer_process
from harness import held_ports
from trainer_process import end, held_out, losses, served_envs

FLAGS = ["--steps=40", "--batch-size=64", "--hidden=64", "--log-every=20"]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return idx_data.write(tmp_path_factory.mktemp("idx"), train=2048, test=512)


def start(build, data, *flags, **variables):
    return trainer_process.start(build.bin / "dtrain-trainer", data, *FLAGS, *flags, **variables)


def check_close(found, expected):
    assert held_out(found) == pytest.approx(held_out(expected), rel=0.05, abs=0.02)


def test_kernels_give_the_cpus_results(build):
    subprocess.run([build.bin / "unit-gpu"], check=True, timeout=600)


@pytest.mark.skipif(shutil.which("compute-sanitizer") is None, reason="no compute-sanitizer")
@pytest.mark.parametrize("tool", ["memcheck", "racecheck", "initcheck", "synccheck"])
def test_kernels_are_clean_by_the_sanitizer(build, tool):
    subprocess.run(["compute-sanitizer", f"--tool={tool}", "--error-exitcode=1",
                    build.bin / "unit-gpu"], check=True, timeout=1800)


@pytest.mark.parametrize("model", ["mlp", "cnn"])
def test_a_gpu_trains_as_the_cpu_does_and_repeats_itself(build, data, model):
    gpu = [end(start(build, data, "--device=cuda", f"--model={model}"))[0] for _ in range(2)]
    check_close(gpu[0], end(start(build, data, "--device=cpu", f"--model={model}"))[0])
    assert held_out(gpu[0]) == held_out(gpu[1])


def test_fp8_learns_nearly_what_bf16_learns_and_repeats_itself(build, data):
    flags = ["--device=cuda", "--precision=bf16", "--hidden=1024,1024", "--batch-size=256"]
    expected, _ = end(start(build, data, *flags))
    if float(re.search(r"compute capability ([\d.]+)", expected)[1]) < 8.9:
        pytest.skip("this GPU has no FP8")
    fp8 = [end(start(build, data, *flags, "--matmul-precision=fp8"))[0] for _ in range(2)]
    assert " of FP8; " in fp8[0]
    check_close(fp8[0], expected)
    assert held_out(fp8[0]) == held_out(fp8[1])


def torch_python():
    """A Python that has PyTorch: that of DTRAIN_TEST_TORCH, this one or the machine's; None: there is none."""
    for python in os.environ.get("DTRAIN_TEST_TORCH"), sys.executable, shutil.which("python3"):
        if python and subprocess.run([python, "-c", "import torch"], capture_output=True).returncode == 0:
            return python
    return None


@pytest.fixture(scope="module")
def tokens(build, tmp_path_factory):
    """Rows of 32 tokens of a text whose words are a token each, so that no row is padded."""
    folder = tmp_path_factory.mktemp("text")
    (folder / "text").write_text(" ".join("abcdefg"[i % 7] for i in range(30 * 24)))
    subprocess.run([build.bin / "dtrain-trainer", "tokenize", folder / "text", "-o", folder / "tokens",
                    "--vocabulary-size=40", "--length=32", "--held-out=0"], check=True, capture_output=True)
    return folder / "tokens"


MODELS = {"mlp": ["--model=mlp", "--hidden=64"],
          "gpt2": ["--model=gpt2", "--layers=2", "--hidden=64", "--heads=2", "--ff=256", "--max-length=32",
                   "--dropout=0"]}


@pytest.mark.parametrize("model", MODELS)
def test_ten_steps_losses_are_those_of_pytorch_on_the_same_card(build, tokens, tmp_path, model):
    python = torch_python()
    if python is None:
        pytest.skip("no python3 here has PyTorch")
    data = tokens if model == "gpt2" else idx_data.write(tmp_path / "idx", train=64, test=64)
    rows = 64
    if model == "gpt2":
        shard, = tokens.glob("train-*.tokens")
        rows = (shard.stat().st_size - 64) // 2 // 32
    parity = pathlib.Path(__file__).with_name("parity_torch.py")
    said = subprocess.run([python, parity, model, data, tmp_path, "10", "0.2"], check=True, text=True,
                          stdout=subprocess.PIPE, timeout=300).stdout
    end(trainer_process.start(build.bin / "dtrain-trainer", data, "--device=cuda", *MODELS[model],
                              f"--initial-weights={tmp_path}/model.safetensors", f"--batch-size={rows}", "--steps=10",
                              "--optimizer=sgd", "--momentum=0", "--learning-rate=0.2", "--lr-schedule=constant",
                              "--log-every=1", f"--csv={tmp_path}/losses.csv"))
    found = losses(tmp_path / "losses.csv")
    assert [found[step] for step in range(1, 11)] == pytest.approx(json.loads(said), rel=2e-4)
    assert found[10] < 0.95 * found[1]


def two_ranks(build, data, *flags):
    """Of one GPU. What rank 0 prints."""
    port = str(held_ports(1)[0])
    ranks = [start(build, data, "--device=cuda", "--batch-size=32", *flags,
                   RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK="0", MASTER_ADDR="127.0.0.1",
                   MASTER_PORT=port, DTRAIN_JOB_TOKEN="a" * 32, NCCL_MULTI_RANK_GPU_ENABLE="1")
             for rank in range(2)]
    said = [rank.communicate(timeout=600) for rank in ranks]
    if "--communication=nccl" in flags and re.search("are on one GPU|or later is needed", said[0][1]):
        pytest.skip("the NCCL here gives two ranks no GPU to share; 2.30.3 does")
    assert [rank.returncode for rank in ranks] == [0, 0], said
    return said[0][0]


@pytest.mark.parametrize("how, said", [("nccl", "NCCL "), ("ring", "copied to and from")])
def test_two_ranks_on_one_gpu_learn_what_one_learns(build, data, how, said):
    out = two_ranks(build, data, f"--communication={how}")
    assert said in out
    check_close(out, end(start(build, data, "--device=cuda"))[0])


@pytest.mark.parametrize("how", ["nccl", "ring"])
def test_every_zero_stage_and_offload_learns_what_stage_0_learns(build, data, tmp_path, how):
    def run(*flags):
        return held_out(two_ranks(build, data, f"--communication={how}", "--clip-norm=1", *flags))
    expected = run("--zero-stage=0")
    for flags in (["--zero-stage=1"], ["--zero-stage=2"], ["--zero-stage=3"],
                  ["--zero-stage=2", "--offload-optimizer=cpu"], ["--zero-stage=3", "--offload-param=cpu"],
                  ["--zero-stage=3", f"--offload-param={tmp_path}", f"--offload-optimizer={tmp_path}"]):
        assert run(*flags) == expected, flags


def test_what_a_run_is_planned_to_take_of_a_gpu_it_takes(build, tokens):
    flags = ["--device=cuda", "--model=gpt2", "--layers=12", "--hidden=768", "--heads=12", "--max-length=32",
             "--batch-size=8", "--steps=4", "--precision=bf16"]
    program = build.bin / "dtrain-trainer"
    plan, _ = end(trainer_process.start(program, tokens, *flags, "--plan-memory"))
    out, _ = end(trainer_process.start(program, tokens, *flags))
    planned = float(re.search(r"^0 .* (\d+\.\d)(?: \(\d\))?$", plan, re.M)[1]) * 1e6
    found = float(re.search(r"([\d.]+) GiB of its memory at most", out)[1]) * 2**30
    assert found == pytest.approx(planned, rel=0.03)


@pytest.mark.parametrize("workers", [1, 2])
def test_workers_of_parameter_servers_compute_on_the_gpu(build, data, workers):
    tasks = [start(build, data, "--device=cuda", f"--batch-size={64 // workers}", **variables)
             for variables in served_envs(workers)]
    outs = [end(task)[0] for task in tasks]
    check_close(outs[1], end(start(build, data, "--device=cuda"))[0])


def test_two_gpus_of_one_process_learn_what_one_learns(build, data):
    process = start(build, data, "--devices=gpu:0,gpu:1", "--batch-size=32")
    out, err = process.communicate(timeout=600)
    if process.returncode != 0 and "gpu:1" in err:
        pytest.skip("there is one GPU")
    assert process.returncode == 0, err
    check_close(out, end(start(build, data, "--device=cuda"))[0])
