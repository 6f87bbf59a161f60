"""The trainer under mpirun: over MPI, and over its own ring."""
import csv
import re
import shutil
import signal
import socket

import pytest

from checkpoint_files import checkpoints, tensors
from harness import EXIT_USAGE, until

pytestmark = pytest.mark.skipif(shutil.which("mpirun") is None, reason="Open MPI is not installed")

ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
MPIRUN = ["mpirun", "--oversubscribe", "--bind-to", "none"]


@pytest.fixture
def mpi(home):
    if home.build.sanitizer:
        pytest.skip("Open MPI's own memory and threads are not ours to check")
    if not (home.build.bin / "dtrain-mpi.so").exists():
        pytest.skip("built without libopenmpi-dev")
    return home


def trained(home, data, name, command, *flags):
    """step -> loss, and what was printed."""
    path = home.folder / f"{name}.csv"
    result = home.run([*command, home.trainer_path, f"--data={data}", "--steps=60",
                       "--log-every=20", "--no-progress", f"--csv={path}", *flags], env=ROOT)
    with path.open() as file:
        return {int(row["step"]): float(row["loss"]) for row in csv.DictReader(file)}, result.out


def test_the_losses_over_mpi_are_those_of_the_ring_and_of_one_process(mpi, data):
    four = [*MPIRUN, "-np", "4"]
    over_mpi, said = trained(mpi, data, "mpi", four, "--communication=mpi", "--batch-size=16")
    assert re.search(r"network +Open MPI v\S+, 4 ranks", said), said
    again, _ = trained(mpi, data, "again", four, "--communication=mpi", "--batch-size=16")
    assert again == over_mpi
    ring, said = trained(mpi, data, "ring", four, "--communication=ring", "--batch-size=16")
    assert "MPI v" not in said
    alone, _ = trained(mpi, data, "alone", [], "--batch-size=64")
    assert len(alone) == 3
    assert over_mpi == pytest.approx(alone, abs=1e-5)
    assert over_mpi == pytest.approx(ring, abs=1e-5)


@pytest.mark.parametrize("devices", ["cpu:0", "cpu:0,cpu:1"])
def test_gradients_of_half_the_bytes_train_as_well_over_mpi(mpi, data, devices):
    """Other bits than fp32's, the same ones in every run, and losses near them: four gradients are
    rounded once each, and their sum, to a relative 2^-8 of bf16, so that losses that have fallen to
    a few hundredths of the first step's keep within some percent of fp32's."""
    four = [*MPIRUN, "-np", "4"]
    losses, ends = {}, {}
    for name in ["fp32", "bf16", "fp16", "bf16 again"]:
        kind = name.split()[0]
        folder = mpi.folder / name.replace(" ", "-")
        losses[name], said = trained(
            mpi, data, name, four, "--communication=mpi", f"--devices={devices}",
            f"--communication-data-type={kind}", "--batch-size=16", f"--checkpoint-dir={folder}")
        assert (f"gradients as {kind}" in said) == (kind != "fp32")
        ends[name] = tensors(checkpoints(folder)[-1])
    assert ends["fp32"] and ends["bf16 again"] == ends["bf16"]
    assert ends["fp32"] != ends["bf16"] != ends["fp16"]
    for kind in ["bf16", "fp16"]:
        assert losses[kind] == pytest.approx(losses["fp32"], rel=0.05)


@pytest.mark.parametrize("devices", ["cpu:0", "cpu:0,cpu:1"])
def test_every_stage_of_zero_over_mpi_has_the_bits_of_stage_0(mpi, data, devices):
    found = []
    for stage in range(4):
        folder = mpi.folder / f"stage-{stage}"
        losses, said = trained(
            mpi, data, f"losses-{stage}", [*MPIRUN, "-np", "3"], "--communication=mpi",
            f"--devices={devices}", f"--zero-stage={stage}", "--batch-size=16", "--clip-norm=1",
            f"--checkpoint-dir={folder}")
        assert "MPI v" in said and (f"ZeRO stage {stage}" in said) == (stage > 0)
        found.append((losses, tensors(checkpoints(folder)[-1])))
    assert found[0][1] and all(one == found[0] for one in found)


def test_ranks_hold_the_same_bits_of_a_sum_over_mpi(mpi):
    """For each type and length; of what travels as 16 bits the terms are rounded once, and the sum."""
    out = mpi.run([*MPIRUN, "-np", "4", mpi.build.bin / "mpi-sums"], env=ROOT).out
    sums = {}
    for kind, count, digest, error in map(str.split, out.splitlines()):
        sums.setdefault((kind, int(count)), []).append((digest, float(error)))
    assert len(sums) == 15
    most = {"fp32": 1e-6, "bf16": 2 * 2**-8, "fp16": 2 * 2**-11}
    for (kind, count), got in sums.items():
        assert len(got) == 4 and len(set(got)) == 1, (kind, count, got)
        assert got[0][1] <= most[kind], (kind, count, got)


@pytest.mark.parametrize("kind, size", [("fp32", 4), ("bf16", 2), ("fp16", 2)])
def test_the_plan_over_mpi_says_what_it_is_handed(mpi, kind, size):
    out = mpi.run([*MPIRUN, "-np", "2", mpi.trainer_path, "--communication=mpi", "--print-plan",
                   f"--communication-data-type={kind}"], env=ROOT).out
    total, = re.findall(r"gradients +([\d,]+) bytes of fp32", out)
    handed, = re.findall(r"a step +rank 0 hands MPI ([\d,]+) bytes", out)
    assert int(handed.replace(",", "")) == int(total.replace(",", "")) * size / 4


def test_mpirun_needs_no_other_flag(mpi, data):
    result = mpi.run([*MPIRUN, "-np", "4", mpi.trainer_path, f"--data={data}", "--steps=5"],
                     env=ROOT)
    assert "ranks     4 (from OMPI_COMM_WORLD_RANK)" in result.out
    assert "no rank computes on a GPU" in result.out


@pytest.mark.parametrize("loss", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_a_lost_rank_of_mpi_ends_the_job_and_is_named(mpi, data, loss):
    path = mpi.folder / "job.log"
    with path.open("wb") as file:
        job = mpi.start([*MPIRUN, "-np", "3", mpi.trainer_path, "--communication=mpi",
                         f"--data={data}", "--epochs=1000000", "--log-every=10",
                         "--peer-timeout=4"], env=ROOT, stdout=file, stderr=file)
    until(lambda: re.search(r"step +20 ", path.read_text()), "the job trains")
    ranks = sorted(int(pid) for pid in mpi.run(
        ["pgrep", "-P", str(job.pid), "-f", "dtrain-trainer"]).out.split())
    assert len(ranks) == 3
    victim = ranks[1]
    mpi.run(["kill", f"-{loss.value}", str(victim)])
    try:
        if loss == signal.SIGSTOP:
            # Where it was when it last told: that may have been before the run, which is faster.
            line = rf"rank \d \({socket.gethostname()}, pid {victim}\).*(at step \d+|before its first step)"
            until(lambda: re.search(line, path.read_text()), lambda: path.read_text()[-2000:])
        mpi.run(["kill", "-CONT", str(victim)], expect=None)
        assert job.wait(timeout=60) != 0
    finally:
        if job.poll() is None:
            job.kill()
            job.wait()
    if loss == signal.SIGKILL:
        # By mpirun, or by the survivors where they had ended too before it looked.
        assert re.search(rf"Killed|pid {victim}\) died", path.read_text())


def test_mpi_that_is_not_there_is_one_line(home, data):
    flags = [f"--data={data}", "--communication=mpi"]
    outside = home.trainer(*flags, expect=EXIT_USAGE)
    assert outside.err.count("\n") == 1 and "mpirun" in outside.err
    shared = home.trainer(*flags, "--transport=shm", expect=EXIT_USAGE)
    assert shared.err.count("\n") == 1 and "--transport=shm" in shared.err
    bare = home.folder / "bare"
    bare.mkdir()
    shutil.copy(home.trainer_path, bare)
    without = home.run([bare / "dtrain-trainer", *flags], expect=EXIT_USAGE,
                       env={"OMPI_COMM_WORLD_SIZE": "1", "OMPI_COMM_WORLD_RANK": "0"})
    assert without.err.count("\n") == 1 and f"{bare}/dtrain-mpi.so" in without.err
    assert "libmpi" not in home.run(["ldd", home.trainer_path]).out


def test_nccl_with_no_gpu_is_an_error(home, data):
    result = home.trainer(f"--data={data}", "--communication=nccl", expect=EXIT_USAGE)
    assert result.err.count("\n") == 1 and "NCCL needs GPUs" in result.err
