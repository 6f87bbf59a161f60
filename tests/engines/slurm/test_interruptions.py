"""What befalls a job that trains: each time it goes on from its last checkpoint, and ends with the
bits of a run that nothing befell."""
import os
import pathlib
import re
import signal
import subprocess
import time

import pytest

from harness import EXIT_JOB_FAILED, until

TRAIN = ["--epochs=20", "--log-every=100"]
PLACE = ["--workers=3", "--worker-cpu=8"]  # One a node, whose other half nobody else has.
_undisturbed = []


@pytest.fixture
def slurm(slurm_home):
    slurm_home.env["PATH"] = f"{slurm_home.build.bin}:{slurm_home.env['PATH']}"
    return slurm_home


def start(slurm, name, *flags, every=200):
    slurm.dtrain("submit", f"--name={name}", *PLACE, *flags, "--", *TRAIN,
                 f"--checkpoint-dir={slurm.folder}/{name}", f"--checkpoint-every={every}",
                 "--resume")


def trains(slurm, name, run=0):
    """Waits until that run has taken some hundred steps."""
    out = slurm.state / f"dtrain/slurm/default/{name}/{run}/worker-0.out"
    until(lambda: out.exists() and "step   300" in out.read_text(), f"run {run} trains")


def has_saved(slurm, name):
    """Saving goes on beside the steps: its end may come later than many of them."""
    until(lambda: list(slurm.folder.glob(f"{name}/step-*.json")), f"{name} has a checkpoint")


def last_line(text):
    return [line for line in text.splitlines() if "held-out" in line][-1].partition("held-out")[2]


def require_same_end(slurm, name):
    """It went on from a checkpoint, and lost no sample and took none twice."""
    if not _undisturbed:
        _undisturbed.append(last_line(slurm.dtrain(
            "submit", "-b", "local", "--name=undisturbed", "--workers=3", "--wait", "--",
            *TRAIN).out))
    slurm.wait_for_end(name, 0)
    assert any("resumed from" in line for line in slurm.lines(name))
    assert last_line(slurm.dtrain("logs", name).out) == _undisturbed[0]


def test_a_job_that_makes_room_for_a_higher_one_goes_on_at_the_same_sample(slurm):
    """Its own last periodic checkpoint would be that of step 0: there is none."""
    start(slurm, "low", every=1_000_000)
    trains(slurm, "low")
    with slurm.start([slurm.dtrain_path, "logs", "-f", "low", "-i", "worker-0"],
                     stderr=subprocess.STDOUT) as follows:
        slurm.submit("high", "true", flags=["--workers=4", "--worker-cpu=8", "--partition=high"])
        slurm.wait_for_end("high", 0)
        require_same_end(slurm, "low")
        followed = follows.stdout.read().decode()
    assert slurm.get("low")["restarts"] == 1
    assert any("stopped by SIGUSR1" in line for line in slurm.lines("low", "--prev"))
    told = [followed.index(words) for words in ("stopped by SIGUSR1", "resumed from", "held-out acc")]
    assert told == sorted(told)  # Both runs, one after the other.


def test_a_job_that_runs_into_its_time_limit_goes_on_at_the_same_sample(slurm):
    """Slurm looks at limits twice a minute. A program that saves nothing is ended at its own."""
    slurm.submit("over", "sleep", "600", flags=["--time=1"])
    slurm.dtrain("submit", "--name=late", *PLACE, "--time=1", "--", "--epochs=100000",
                 f"--checkpoint-dir={slurm.folder}/late", "--resume")
    until(lambda: slurm.get("late")["restarts"] > 0, "the job was queued anew", 240)
    run = slurm.state / "dtrain/slurm/default/late/0"
    saved = re.search(r"step (\d+) is saved", (run / "worker-0.err").read_text()).group(1)
    assert until(lambda: [line for line in slurm.lines("late", "-i", "worker-0")
                          if line.endswith(f"at step {saved}") and "resumed from" in line],
                 "it goes on")
    result = slurm.dtrain("wait", "over", expect=EXIT_JOB_FAILED, seconds=150)
    assert "time limit" in result.err


def test_a_killed_rank_has_all_start_anew_from_the_last_checkpoint(slurm):
    start(slurm, "hurt", "--max-restarts=1")
    trains(slurm, "hurt")
    has_saved(slurm, "hurt")
    rank = slurm.get("hurt")["instances"][1]
    child = subprocess.run(["pgrep", "-P", str(rank["pid"]), "dtrain-trainer"], check=True,
                           capture_output=True, text=True).stdout
    os.kill(int(child), signal.SIGKILL)
    require_same_end(slurm, "hurt")
    assert slurm.get("hurt")["restarts"] == 1


@pytest.mark.parametrize("worker", [0, 2])
def test_a_job_whose_node_fails_is_queued_anew(slurm, slurm_cluster, worker):
    """The first node is that of the batch script."""
    start(slurm, "fallen", "--max-restarts=1")
    trains(slurm, "fallen")
    has_saved(slurm, "fallen")
    node = slurm.get("fallen")["instances"][worker]["node"]
    slurm_cluster.call("scontrol", "update", f"nodename={node}", "state=down", "reason=test")
    require_same_end(slurm, "fallen")  # The node returns to service as soon as it answers.


def faults_of_children(pid):
    """Of those that have ended."""
    return int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[8])


def test_a_controller_that_is_started_anew_changes_nothing(slurm, slurm_cluster):
    slurm.submit("calm", "sh", "-c", "sleep 12; echo still here", flags=["--workers=2"])
    slurm.running("calm")
    started = time.time()  # It writes down what runs only every few seconds.
    until(lambda: slurm_cluster.saved_at() > started + 1, "the controller has saved its state")
    with slurm.start([slurm.dtrain_path, "wait", "calm"]) as waits:
        until(lambda: faults_of_children(waits.pid) > 0, "its first question is answered")
        slurm_cluster.kill_controller()
        slurm_cluster.start_controller()
        assert waits.wait(60) == 0
    assert slurm.lines("calm", "-i", "worker-1") == ["still here"]
    assert slurm.get("calm")["restarts"] == 0
