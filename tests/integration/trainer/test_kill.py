"""A run that is killed, at random moments too where DTRAIN_SOAK is set, and what it saves while it
goes on."""
import os
import random
import re
import shutil
import signal
import subprocess
import time

import pytest

from checkpoint_files import checkpoints, last_of, last_saved
from harness import EXIT_USAGE, held_ports, soak, until
from trainer_process import NO_END, gang_env

# All that a checkpoint has to bring back: dropout, masks, a loss scale that moves, a warmup.
SHAPE = ["--layers=1", "--hidden=32", "--heads=2", "--ff=32", "--max-length=32", "--clip-norm=1",
         "--log-every=10000"]
PRECISIONS = {"fp16": ["--precision=fp16", "--initial-scale-power=24", "--loss-scale-window=40"],
              "bf16": ["--precision=bf16"]}
FLAGS = ["--model=bert", *SHAPE, *PRECISIONS["fp16"], "--batch-size=16", "--lr-schedule=warmup",
         "--steps=800"]
ROUNDS = int(os.environ.get("DTRAIN_TEST_KILLS", "20"))
SEED = int(os.environ.get("DTRAIN_TEST_SEED", "31"))  # Of the first round; each later one has the next.


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
@pytest.mark.timeout(60 * ROUNDS)
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


def gang(home, command, ranks, kill=None):
    """Trains so many ranks to their end; or calls `kill` with them, and waits for the others' end."""
    [port] = held_ports(1)
    outs = [home.folder / f"out.{rank}" for rank in range(ranks)]
    running = []
    try:
        for rank, path in enumerate(outs):
            with open(path, "wb") as out:
                running.append(home.start(command, env=gang_env(rank, ranks, port), stdout=out,
                                          stderr=out))
        killed = kill(running) if kill else []
        for process in running:
            process.wait(120 * home.build.slowness)
    finally:
        for process in running:
            process.kill()
            process.wait()
    codes = [process.returncode for process in running]
    said = "\n".join(path.read_text() for path in outs)
    may_end = [0, -signal.SIGKILL] if killed else [0]
    for rank, code in enumerate(codes):
        lost_one = killed and rank not in killed and code == 1
        assert code in may_end or lost_one, f"{codes} of {killed} killed:\n{said}"
    return codes


@soak
@pytest.mark.timeout(60 * ROUNDS)
@pytest.mark.parametrize("ranks, stage, model, precision, files", [
    (3, 1, "bert", "fp16", []),
    (2, 2, "gpt2", "bf16", []),
    (2, 3, "bert", "fp16", []),
    (2, 1, "gpt2", "fp16", ["optimizer"]),
    (3, 3, "bert", "bf16", ["param"]),
    (2, 3, "gpt2", "fp16", ["optimizer", "param"]),
    (1, 3, "bert", "fp16", ["optimizer", "param"])])
def test_ranks_that_share_killed_at_random_moments_end_with_the_bits_of_ranks_that_were_not(
        home, tokens, ranks, stage, model, precision, files):
    """One of them or all, at any moment or while a checkpoint is written."""
    fast = home.folder / "fast"
    fast.mkdir()
    command = [home.trainer_path, f"--data={tokens}", f"--model={model}", *SHAPE,
               *PRECISIONS[precision], "--batch-size=4", "--lr-schedule=warmup-cosine",
               "--warmup-steps=40", "--steps=150", f"--zero-stage={stage}",
               *(f"--offload-{what}={fast}" for what in files)]
    gang(home, [*command, f"--checkpoint-dir={home.folder / 'whole'}"], ranks)
    whole = last_of(home.folder / "whole")
    for seed in range(SEED, SEED + ROUNDS):
        chosen = random.Random(seed)
        folder = home.folder / f"run-{seed}"
        again = [*command, f"--checkpoint-dir={folder}", "--checkpoint-every=3", "--resume"]
        print(f"DTRAIN_TEST_SEED={seed} DTRAIN_TEST_KILLS=1 repeats this round:")

        def kill(running):
            killed = chosen.choice([*([rank] for rank in range(ranks)), list(range(ranks))])
            step = last_saved(folder) + chosen.randrange(60)
            until(lambda: last_saved(folder) >= step or running[0].poll() is not None,
                  f"step {step} is saved", 120, longest_pause=0.02)
            time.sleep(chosen.uniform(0, 0.1))
            saved = set(folder.glob("*"))
            writes = chosen.random() < 0.5
            while writes and set(folder.glob("*")) <= saved and running[0].poll() is None:
                time.sleep(0.0005)
            time.sleep(chosen.uniform(0, 0.01))
            for rank in killed:
                running[rank].kill()
            print(f"{killed} killed at step {last_saved(folder)}{', as files came' * writes}")
            return killed

        for _ in range(chosen.randint(1, 3)):
            print("which ended with", gang(home, again, ranks, kill))
        gang(home, again, ranks)
        assert last_of(folder) == whole
        assert not list(fast.iterdir())
        shutil.rmtree(folder)


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
