"""--plan-memory: what it says, against what the ranks of a run then take."""
import os
import re

import pytest

import text_data
from harness import EXIT_USAGE, held_ports

BERT = ["--model=bert", "--layers=6", "--hidden=512", "--heads=8", "--ff=2048", "--max-length=32"]
MODELS = {"mlp": ["--model=mlp", "--hidden=3072,3072", "--batch-size=64"],
          "bert": [*BERT, "--batch-size=16"],
          "recomputed": [*BERT, "--batch-size=64", "--checkpoint-activations"],
          "bf16": [*BERT, "--batch-size=16", "--precision=bf16"],
          "muon": [*BERT, "--batch-size=16", "--optimizer=muon"],
          "gpt2": ["--model=gpt2", *BERT[1:], "--batch-size=16"]}


def planned(text):
    """Stage -> MB at most."""
    return {int(stage): float(most) for stage, most in
            re.findall(r"^(\d) .* ([\d.]+)(?: \(\d\))?$", text, re.MULTILINE)}


def taken(home, ranks, flags):
    """MB of rank 0 at most, of a run over TCP: through shared memory each rank would be counted
    what it reads of the others."""
    [port] = held_ports(1)
    processes = []
    for rank in range(ranks):
        env = {"RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_RANK": str(rank),
               "LOCAL_WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1",
               "MASTER_PORT": str(port), "DTRAIN_JOB_TOKEN": "secret"}
        with open(home.folder / f"rank-{rank}.log", "wb") as log:
            processes.append(home.start([home.trainer_path, "--transport=tcp", "--no-progress",
                                         "--steps=3", *flags], env=env, stdout=log, stderr=log))
    most = []
    for rank, process in enumerate(processes):
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert status == 0, (home.folder / f"rank-{rank}.log").read_text()
        most.append(usage.ru_maxrss * 1024 / 1e6)
    return most[0]


def check_plan(home, ranks, flags, stage):
    """Of a run with these flags: what is planned by stage, once what its ranks take is found so."""
    if home.build.sanitizer:
        pytest.skip("a sanitizer's memory is not planned")
    flags = [*flags, f"--zero-stage={stage}"]
    plan = planned(home.trainer("--plan-memory", f"--plan={ranks}", *flags).out)
    assert taken(home, ranks, flags) == pytest.approx(plan[stage], rel=0.03)
    return plan


@pytest.mark.parametrize("model, stage", [
    *(("bert", stage) for stage in range(4)), ("mlp", 0), ("mlp", 2), ("bf16", 0), ("bf16", 3),
    ("recomputed", 0), ("muon", 2), ("muon", 3)])
def test_a_rank_takes_what_was_planned(home, data, tokens, model, stage):
    flags = [f"--data={data if model == 'mlp' else tokens}", *MODELS[model]]
    plan = check_plan(home, 4, flags, stage)
    assert sorted(plan) == [0, 1, 2, 3]


@pytest.mark.parametrize("stage", range(4))
def test_a_rank_takes_what_was_planned_of_a_gpt2(home, stage):
    tokens = text_data.write_gpt2(home, text_data.write_gpt2_vocabulary(home.folder / "gpt2"), 32)
    check_plan(home, 4, [f"--data={tokens}", *MODELS["gpt2"]], stage)


@pytest.mark.parametrize("stage", [0, 3])
def test_what_lies_in_files_takes_no_memory(home, tokens, stage):
    flags = [f"--data={tokens}", *MODELS["bert"]]
    plan = check_plan(home, 4, [*flags, f"--offload-optimizer={home.folder}"], stage)
    whole = planned(home.trainer("--plan-memory", "--plan=4", *flags, f"--zero-stage={stage}").out)
    assert plan[stage] < 0.9 * whole[stage]


@pytest.mark.parametrize("saved", [[], ["--checkpoint-dir={}", "--checkpoint-every=1"]])
def test_one_rank_takes_less_with_its_parameters_in_files_as_planned(home, tokens, saved):
    flags = [f"--data={tokens}", *MODELS["bert"], *(flag.format(home.folder / "run") for flag in saved)]
    plan = check_plan(home, 1, [*flags, f"--offload-param={home.folder}"], 3)
    assert sorted(plan) == [0, 3] and plan[3] < 0.9 * plan[0]


@pytest.mark.parametrize("stage, every", [(0, []), (3, []), (3, ["--checkpoint-every=1"])])
def test_a_checkpoint_is_in_the_plan(home, tokens, stage, every):
    flags = [f"--data={tokens}", *MODELS["bert"], f"--checkpoint-dir={home.folder / 'saved'}", *every]
    plan = check_plan(home, 2, flags, stage)
    assert taken(home, 2, [*flags, f"--zero-stage={stage}", "--resume"]) < plan[stage] * 1.03


def test_a_plan_needs_neither_data_nor_the_memory_that_it_speaks_of(home):
    out = home.trainer("--plan-memory", "--plan=64", "--model=bert", "--preset=large").out
    assert out.startswith("MB that each of 64 ranks takes, with batches of 64, by ZeRO's stage: "
                          "bert of 24 layers, 1024 wide")
    assert "no --data is given" in out
    assert planned(out)[0] > planned(out)[3] + 4 * 335  # Millions of parameters.


def test_what_a_plan_of_memory_is_not_for_is_refused_in_one_line(home, data):
    error = home.trainer("--plan-memory", f"--data={data}", expect=EXIT_USAGE, env={
        "DTRAIN_JOB_TOKEN": "secret",
        "TF_CONFIG": '{"cluster": {"worker": ["127.0.0.1:9"], "ps": ["127.0.0.1:10"]}, '
                     '"task": {"type": "worker", "index": 0}}'}).err
    assert "--plan-memory" in error and error.count("\n") == 1
