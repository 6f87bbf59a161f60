"""Ranks that share optimizer states, gradients and parameters as ZeRO's stages say."""
import re
import signal

import pytest

from harness import EXIT_USAGE, until
from test_trainer import NO_END, checkpoints, tensors

STAGES = [1, 2, 3]


@pytest.fixture
def workers(home, data):
    """Trains three of them, and gives what the last checkpoint in `folder` holds."""
    def run(folder, stage, *flags):
        home.dtrain("submit", f"--name={folder}-{stage}-{len(flags)}", "--workers=3", "--wait", "--",
                    f"--data={data}", "--batch-size=16", "--epochs=2", "--clip-norm=1",
                    f"--zero-stage={stage}", f"--checkpoint-dir={home.folder / folder}", *flags)
        return tensors(checkpoints(home.folder / folder)[-1])
    return run


def test_every_stage_ends_with_the_bits_of_ranks_that_hold_all(workers):
    whole = workers("whole", 0)
    for stage in STAGES:
        assert workers(f"stage-{stage}", stage) == whole


@pytest.mark.parametrize("transport", ["tcp", "shm"])
def test_a_run_goes_on_with_another_stage_bit_for_bit(workers, transport):
    whole = workers("whole", 0)
    assert workers("whole", 1, "--resume") == whole  # Nothing is left to do, nor to save.
    for first, second in [(0, 3), (3, 1), (2, 0), (1, 2)]:
        folder = f"from-{first}-{second}"
        workers(folder, first, "--steps=20", f"--transport={transport}")
        assert workers(folder, second, "--resume", f"--transport={transport}") == whole


def test_replicas_of_one_process_share_as_workers_do(home, train):
    def learned(stage):
        folder = home.folder / f"stage-{stage}"
        out = train("--batch-size=16", "--epochs=2", "--clip-norm=1", f"--zero-stage={stage}",
                    "--devices=cpu:0,cpu:1,cpu:2", f"--checkpoint-dir={folder}").out
        assert (f"ZeRO stage {stage}" in out) == (stage > 0)
        return tensors(checkpoints(folder)[-1])

    whole = learned(0)
    for stage in STAGES:
        assert learned(stage) == whole


def test_ranks_that_share_make_room_with_a_whole_checkpoint(home, data):
    folder = home.folder / "room"
    flags = [f"--data={data}", "--devices=cpu:0,cpu:1,cpu:2", "--batch-size=16", NO_END,
             "--log-every=10", "--zero-stage=2", f"--checkpoint-dir={folder}"]
    with open(home.folder / "out", "wb") as out:
        rank = home.start([home.trainer_path, *flags], stdout=out, stderr=out)
    try:
        until(lambda: re.search(rb"step +20 ", (home.folder / "out").read_bytes()), "step 20")
        rank.send_signal(signal.SIGUSR1)
        assert rank.wait(30 * home.build.slowness) == 75
    finally:
        if rank.poll() is None:
            rank.kill()
            rank.wait()
    step = int(re.search(r"step (\d+) is saved in", (home.folder / "out").read_text()).group(1))
    out = home.trainer(*flags, "--resume", f"--steps={step + 10}").out
    assert f"at step {step}" in out


def test_what_lies_in_files_changes_no_bit_and_leaves_nothing(home, workers):
    whole = workers("whole", 0)
    fast = home.folder / "fast"
    fast.mkdir()
    places = [f"--offload-optimizer={fast}", f"--offload-param={fast}"]
    assert workers("states", 0, places[0]) == whole
    workers("shared", 3, *places, "--steps=20")
    assert workers("shared", 3, *places, "--resume", "--keep=3", "--log-every=50") == whole
    assert not list(fast.iterdir())
    assert workers("host", 3, "--offload-optimizer=cpu", "--offload-param=cpu") == whole


@pytest.mark.parametrize("flags, named", [
    (["--offload-optimizer=/nowhere"], "/nowhere: no file of"),
    (["--offload-param=/tmp", "--zero-stage=2"], "--zero-stage=3")])
def test_what_cannot_be_offloaded_is_refused_in_one_line(home, data, flags, named):
    result = home.trainer(f"--data={data}", *flags, expect=EXIT_USAGE)
    assert named in result.err and len(result.err.splitlines()) == 1


@pytest.mark.parametrize("flags, named", [
    (["--zero-stage=4"], "--zero-stage"),
    (["--zero-stage=1", "--optimizer=lamb"], "--optimizer=lamb"),
    (["--zero-stage=1", "--optimizer=muon"], "--optimizer=muon"),
    (["--zero-stage=3", "--batch-split=speed"], "--batch-split=speed"),
    (["--zero-stage=2", "--plan=4"], "--plan"),
    (["--zero-stage=2", "--min-workers=1"], "--min-workers")])
def test_what_sharing_ranks_lack_is_refused_in_one_line(home, data, flags, named):
    result = home.trainer(f"--data={data}", *flags, expect=EXIT_USAGE,
                          env={"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
                               "MASTER_PORT": "29500"})
    assert named in result.err and len(result.err.splitlines()) == 1
