"""Ranks that share optimizer states, gradients and parameters as ZeRO's stages say."""
import re
import shutil
import signal

import pytest

from checkpoint_files import checkpoints, last_saved, tensors
from harness import EXIT_USAGE, held_ports, until
from trainer_process import NO_END, gang_env, held_out, losses

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


@pytest.mark.parametrize("optimizer, stage", [("lamb", 2), ("muon", 3)])
def test_optimizers_that_move_whole_tensors_share_them_too(workers, optimizer, stage):
    """From one stage to another, with the optimizer's states of the first."""
    flags = [f"--optimizer={optimizer}", "--weight-decay=0.1"]
    whole = workers("whole", 0, *flags)
    workers("run", stage, "--steps=20", *flags)
    assert workers("run", 1, "--resume", *flags) == whole


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


def test_each_rank_writes_its_part_and_one_that_is_damaged_is_named_and_passed_over(home, train):
    folder = home.folder / "parts"
    flags = ["--batch-size=16", "--devices=cpu:0,cpu:1,cpu:2", f"--checkpoint-dir={folder}",
             "--checkpoint-every=10"]
    train(*flags, "--zero-stage=1", "--steps=20")
    older, newer = checkpoints(folder)
    parts = sorted(path.name for path in folder.glob(f"{newer.stem}.rank-*"))
    assert parts == [f"step-000000020.rank-{rank:05}-of-00003.safetensors" for rank in range(3)]
    assert f"{newer}: whole, " in home.trainer("inspect", folder).out
    part = folder / parts[1]
    raw = bytearray(part.read_bytes())
    raw[len(raw) // 2] ^= 1
    part.write_bytes(raw)
    inspected = home.trainer("inspect", folder).out
    assert f"{newer}: damaged: {part.stem} " in inspected and f"{older}: whole, " in inspected
    out = train(*flags, "--zero-stage=3", "--steps=30", "--resume").out
    assert f"{newer}: damaged: {part.stem} " in out and f"resumed from {older} at step 10" in out
    assert [path.stem for path in checkpoints(folder)] == ["step-000000020", "step-000000030"]
    assert f"{newer}: whole, " in home.trainer("inspect", folder).out


def test_a_run_of_ranks_that_share_killed_again_and_again_ends_with_the_bits_of_one_that_was_not(
        home, data):
    command = [home.trainer_path, f"--data={data}", "--batch-size=16", "--steps=300",
               "--log-every=10000", "--devices=cpu:0,cpu:1"]
    home.run([*command, f"--checkpoint-dir={home.folder / 'whole'}"], seconds=300)
    folder = home.folder / "run"
    command += [f"--checkpoint-dir={folder}", "--checkpoint-every=7", "--resume"]
    for stage, step in [(1, 7), (3, 70), (2, 140)]:
        with open(home.folder / "log", "wb") as log:
            run = home.start([*command, f"--zero-stage={stage}"], stdout=log, stderr=log)
        until(lambda: last_saved(folder) >= step or run.poll() is not None, f"step {step} is saved")
        run.kill()
        run.wait()
        assert run.returncode in (0, -signal.SIGKILL), (home.folder / "log").read_text()
    home.run([*command, "--zero-stage=3"], seconds=300)
    assert tensors(checkpoints(folder)[-1]) == tensors(checkpoints(home.folder / "whole")[-1])


def test_a_run_goes_on_with_another_number_of_ranks_from_their_parts(home, data):
    """Of as many samples a step: sums are taken in another order."""
    def trained(folder, ranks, stage, *flags):
        log = home.folder / f"{folder}.csv"
        devices = ",".join(f"cpu:{rank}" for rank in range(ranks))
        home.trainer(f"--data={data}", f"--devices={devices}", f"--batch-size={48 // ranks}",
                     f"--zero-stage={stage}", f"--checkpoint-dir={home.folder / folder}",
                     f"--csv={log}", "--log-every=5", *flags)
        return losses(log)

    whole = trained("whole", 2, 1, "--steps=60")
    trained("parts", 3, 3, "--steps=60", "--checkpoint-every=20", "--keep=3")
    for ranks, stage in [(1, 0), (2, 1), (4, 3)]:
        folder = f"with-{ranks}"
        (home.folder / folder).mkdir()
        for path in (home.folder / "parts").glob("step-000000020.*"):
            shutil.copy(path, home.folder / folder)
        assert trained(folder, ranks, stage, "--steps=60", "--resume") == pytest.approx(
            {step: loss for step, loss in whole.items() if step > 20}, rel=1e-3)


def test_ranks_that_do_not_see_one_folder_have_rank_0_save_all_of_it(home, data):
    [port] = held_ports(1)
    ranks = [home.start([home.trainer_path, f"--data={data}", "--batch-size=16", "--steps=20",
                         "--zero-stage=3", f"--checkpoint-dir={home.folder / str(rank)}"],
                        env=gang_env(rank, 2, port)) for rank in range(2)]
    outs = [rank.communicate(timeout=60 * home.build.slowness)[0].decode() for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], outs
    assert f"--checkpoint-dir={home.folder / '0'}: not every rank can write to this folder" in outs[0]
    assert [path.name for path in checkpoints(home.folder / "0")] == ["step-000000020.safetensors"]
    assert not checkpoints(home.folder / "1")


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


def test_one_rank_trains_with_its_parameters_in_files_as_with_them_in_memory(home, train):
    fast = home.folder / "fast"
    fast.mkdir()
    offload = ["--zero-stage=3", f"--offload-param={fast}"]

    def run(folder, *flags):
        out = train("--batch-size=16", "--clip-norm=1", f"--checkpoint-dir={home.folder / folder}",
                    f"--export={home.folder / 'weights'}", "--keep=1", *flags).out
        [path] = checkpoints(home.folder / folder)
        exported = (home.folder / "weights/model.safetensors").read_bytes()
        return out, (path.name, path.read_bytes(), exported, held_out(out))

    out, whole = run("whole", "--steps=30", "--zero-stage=3")
    assert "ZeRO" not in out
    out, offloaded = run("offloaded", "--steps=30", *offload)
    assert f", ZeRO stage 3, parameters in {fast}" in out
    assert offloaded == whole
    both = [*offload, f"--offload-optimizer={fast}"]
    run("resumed", "--steps=20", *both)
    assert run("resumed", "--steps=30", *both, "--resume")[1] == whole
    run("from-memory", "--steps=20")
    assert run("from-memory", "--steps=30", *offload, "--resume")[1] == whole
    assert not list(fast.iterdir())


def test_more_ranks_than_the_smallest_model_has_chunks_share_it(home, train):
    """Of its 805 parameters the last of 64 ranks own none."""
    def learned(stage):
        folder = home.folder / f"stage-{stage}"
        for more in (["--steps=1"], ["--steps=2", "--resume"]):
            train("--hidden=1", "--batch-size=1", f"--zero-stage={stage}", *more,
                  "--devices=" + ",".join(f"cpu:{i}" for i in range(64)), f"--checkpoint-dir={folder}")
        return tensors(checkpoints(folder)[-1])

    whole = learned(0)
    assert sum(map(len, whole.values())) == 3 * 4 * 805  # With Adam's moments.
    for stage in STAGES:
        assert learned(stage) == whole


@pytest.mark.parametrize("flags, named", [
    (["--offload-optimizer=/nowhere"], "/nowhere: no file there for"),
    (["--offload-param=/tmp", "--zero-stage=2"], "--zero-stage=3"),
    (["--offload-param=cpu"], "--zero-stage=3")])
def test_what_cannot_be_offloaded_is_refused_in_one_line(home, data, flags, named):
    result = home.trainer(f"--data={data}", *flags, expect=EXIT_USAGE)
    assert named in result.err and len(result.err.splitlines()) == 1


@pytest.mark.parametrize("flags, named", [
    (["--zero-stage=4"], "--zero-stage"),
    (["--zero-stage=3", "--optimizer=lamb"], "--zero-stage=2"),
    (["--zero-stage=3", "--batch-split=speed"], "--batch-split=speed"),
    (["--zero-stage=2", "--plan=4"], "--plan"),
    (["--zero-stage=2", "--min-workers=1"], "give --checkpoint-dir=DIR")])
def test_what_sharing_ranks_lack_is_refused_in_one_line(home, data, flags, named):
    result = home.trainer(f"--data={data}", *flags, expect=EXIT_USAGE,
                          env={"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
                               "MASTER_PORT": "29500"})
    assert named in result.err and len(result.err.splitlines()) == 1
