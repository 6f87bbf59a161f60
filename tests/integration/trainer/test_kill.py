"""A run that is killed, at random moments too where DTRAIN_SOAK is set, and what it saves while it
goes on."""
import os
import random
import re
import signal
import subprocess
import time

import pytest

from checkpoint_files import checkpoints, last_of, last_saved
from harness import EXIT_USAGE, soak, until
from trainer_process import NO_END

# All that a checkpoint has to bring back: dropout, masks, a loss scale that moves, a warmup.
FLAGS = ["--model=bert", "--layers=1", "--hidden=32", "--heads=2", "--ff=32", "--max-length=32",
         "--batch-size=16", "--precision=fp16", "--initial-scale-power=24", "--loss-scale-window=40",
         "--clip-norm=1", "--lr-schedule=warmup", "--steps=800", "--log-every=10000"]
ROUNDS = int(os.environ.get("DTRAIN_TEST_KILLS", "20"))


def cut_newest(folder):
    """The last that is whole: what is saved last of one is its .json."""
    newest = max(folder.glob("step-*.json")).with_suffix(".safetensors")
    os.truncate(newest, newest.stat().st_size // 2)


def test_a_run_killed_again_and_again_ends_with_the_bits_of_one_that_was_not(home, tokens):
    """Before it has a checkpoint, after some, and with the last of these damaged by it."""
    command = [home.trainer_path, f"--data={tokens}", *FLAGS]
    home.run([*command, f"--checkpoint-dir={home.folder / 'whole'}"], seconds=300)
    folder = home.folder / "run"
    command += [f"--checkpoint-dir={folder}", "--checkpoint-every=7", "--keep=3", "--resume"]
    for step in (0, 70, 210):
        with open(home.folder / "log", "wb") as log:
            run = home.start(command, stdout=log, stderr=log)
        until(lambda: last_saved(folder) >= step or run.poll() is not None, f"step {step} is saved")
        run.kill()
        run.wait()
        assert run.returncode in (0, -signal.SIGKILL), (home.folder / "log").read_text()
    cut_newest(folder)
    result = home.run(command, seconds=300)
    assert "trying the one before" in result.out + result.err
    assert last_of(folder) == last_of(home.folder / "whole")


@soak
def test_a_run_killed_at_random_moments_ends_with_the_bits_of_one_that_was_not(home, tokens):
    chosen = random.Random(18)
    command = [home.trainer_path, f"--data={tokens}", *FLAGS]
    begun = time.monotonic()
    home.run([*command, f"--checkpoint-dir={home.folder / 'whole'}"], seconds=300)
    seconds = time.monotonic() - begun
    whole = last_of(home.folder / "whole")
    folder = home.folder / "run-0"
    ends, passed_over = 0, 0
    again = ["--checkpoint-every=7", "--keep=3", "--resume"]
    for _ in range(ROUNDS):
        with open(home.folder / "log", "wb") as log:
            run = home.start([*command, f"--checkpoint-dir={folder}", *again], stdout=log, stderr=log)
            try:
                run.wait(chosen.uniform(0.05, seconds / 2))
            except subprocess.TimeoutExpired:
                run.kill()
                run.wait()
        said = (home.folder / "log").read_text()
        assert run.returncode in (0, -signal.SIGKILL), said
        passed_over += "trying the one before" in said
        if run.returncode == 0:
            assert last_of(folder) == whole
            ends += 1
            folder = home.folder / f"run-{ends}"
        elif len(checkpoints(folder)) > 1 and chosen.random() < 0.5:
            cut_newest(folder)
    home.run([*command, f"--checkpoint-dir={folder}", *again], seconds=300)
    assert last_of(folder) == whole
    assert passed_over > 0 or ROUNDS < 20


def test_so_many_checkpoints_are_kept_as_asked(home, train):
    train("--steps=60", "--checkpoint-every=10", "--keep=4", f"--checkpoint-dir={home.folder / 'run'}")
    assert [int(path.stem[5:]) for path in checkpoints(home.folder / "run")] == [30, 40, 50, 60]


def test_what_keeps_a_checkpoint_from_being_saved_ends_the_run(home, data):
    """Found by the save after, or at the end: the steps between go on."""
    folder = home.folder / "run"
    run = home.start([home.trainer_path, f"--data={data}", NO_END, "--checkpoint-every=50",
                      f"--checkpoint-dir={folder}"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        until(lambda: checkpoints(folder), "a checkpoint")
        folder.rename(home.folder / "gone")
        (home.folder / "run").write_text("not a folder")
        out, err = run.communicate(timeout=60 * home.build.slowness)
    finally:
        if run.poll() is None:
            run.kill()
            run.wait()
    assert run.returncode == 1 and str(folder) in err.decode(), err


@pytest.mark.parametrize("asked, number, code", [
    ("term", signal.SIGTERM, 75), ("both", signal.SIGTERM, 75), ("both", signal.SIGUSR1, 75),
    ("usr1", signal.SIGTERM, -signal.SIGTERM)])
def test_a_run_saves_and_makes_room_on_the_signal_it_is_told(home, data, asked, number, code):
    folder = home.folder / "run"
    flags = [f"--data={data}", NO_END, "--log-every=10", f"--checkpoint-dir={folder}"]
    with open(home.folder / "out", "wb") as out:
        run = home.start([home.trainer_path, *flags, f"--save-on-signal={asked}"], stdout=out,
                         stderr=out)
        try:
            until(lambda: b"epoch" in (home.folder / "out").read_bytes(), "a first line")
            run.send_signal(number)
            assert run.wait(30 * home.build.slowness) == code
        finally:
            if run.poll() is None:
                run.kill()
                run.wait()
    said = re.search(r"stopped by (\w+): step (\d+) is saved", (home.folder / "out").read_text())
    assert (said is not None) == (code == 75)
    if said:
        assert said[1] == number.name
        out = home.trainer(*flags, "--resume", f"--steps={int(said[2]) + 10}").out
        assert f"at step {said[2]}" in out


@pytest.mark.parametrize("flag", ["--keep=4", "--save-on-signal=term"])
def test_flags_of_checkpoints_without_a_folder_for_them_are_refused(train, flag):
    error = train(flag, expect=EXIT_USAGE).err
    assert flag.split("=")[0] + ": needs --checkpoint-dir=DIR" in error
