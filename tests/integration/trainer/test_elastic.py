"""Elastic training: workers die, stop, are cut off and come back at any moment, and no sample is
lost or counted twice.

With DTRAIN_SOAK=1 there are random rounds too: 20, or what DTRAIN_ELASTIC_ROUNDS says; one that
fails is repeated with DTRAIN_ELASTIC_SEED=N DTRAIN_ELASTIC_ROUNDS=1.
"""
import ctypes
import dataclasses
import json
import os
import random
import re
import signal
import socket
import time

import pytest

import harness
from elastic_job import BATCH, PATIENCE, SAMPLES, Job, running_jobs, until
from harness import EXIT_USAGE, held_ports, soak
from trainer_process import gang_env, losses

ROUNDS = int(os.environ.get("DTRAIN_ELASTIC_ROUNDS", "20"))
FIRST_SEED = int(os.environ.get("DTRAIN_ELASTIC_SEED", "1"))
KILLS = ("kill", "kill and restart")


@pytest.fixture
def job(home, data, tmp_path):
    with running_jobs() as jobs:
        def start(workers, *flags, folder="job", data=data):
            jobs.append(Job(home, home.trainer_path, data, tmp_path / folder, workers, *flags))
            return jobs[-1]
        yield start


def cut_off(worker):
    """Shuts down every connection of a process, as a network that goes away does."""
    pidfd = os.pidfd_open(worker.pid)
    try:
        for name in os.listdir(f"/proc/{worker.pid}/fd"):
            try:
                if not os.readlink(f"/proc/{worker.pid}/fd/{name}").startswith("socket:"):
                    continue
            except FileNotFoundError:
                continue
            pidfd_getfd = 438
            fd = ctypes.CDLL(None, use_errno=True).syscall(pidfd_getfd, pidfd, int(name), 0)
            if fd < 0:
                continue
            with socket.socket(fileno=fd) as theirs:
                try:
                    theirs.getpeername()  # not one that listens
                    theirs.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
    finally:
        os.close(pidfd)


def test_a_global_batch_stays_whatever_the_number_of_workers(job, home, data):
    """Its samples are shared out anew, in passes of one size at most; so every step is of the same
    samples as with one worker, and losses differ by the rounding of sums alone. What is in files
    is sent to who joins, too."""
    flags = ["--global-batch-size=100", "--batch-size=24", "--epochs=40", "--log-every=1"]
    alone = home.folder / "alone.csv"
    home.trainer(f"--data={data}", "--global-batch-size=100", "--epochs=40", "--log-every=1",
                 f"--csv={alone}")
    workers = job(3, *flags, "--min-workers=1", f"--offload-optimizer={home.folder}")
    until(lambda: len(workers.steps()) > 5, workers)
    workers.of_rank[1].kill()
    until(lambda: "lost rank 1" in workers.text(), workers)
    workers.start(1)
    until(lambda: "joined by" in workers.text(), workers)
    workers.wait(workers.workers[1])
    steps = sorted(workers.steps().items())
    for (_, position), (_, following) in zip(steps, steps[1:-1]):
        assert following - position == 100, workers.text()
    assert steps[-1] == (768, 40 * SAMPLES)
    expected, found = losses(alone), losses(workers.csv)
    assert found.keys() == expected.keys()
    # The line of a step that a worker was lost with is of those that went on.
    others = [step for step in expected
              if found[step] != pytest.approx(expected[step], rel=0.02, abs=2e-3)]
    assert len(others) <= 1, [(step, found[step], expected[step]) for step in others]


def test_gpt2_keeps_the_batch_of_deepspeeds_elasticity_when_a_worker_dies(job, home, tokens, tmp_path):
    config = home.folder / "ds_config.json"
    config.write_text(json.dumps({"elasticity": {"enabled": True, "max_train_batch_size": 60,
                                                 "micro_batch_sizes": [2, 6], "min_gpus": 1, "max_gpus": 4}}))
    flags = ["--model=gpt2", "--layers=2", "--hidden=32", "--heads=2", "--max-length=32", "--dropout=0",
             f"--config={config}", "--steps=300", "--log-every=1"]
    alone = tmp_path / "alone.csv"
    home.trainer(f"--data={tokens}", *flags, f"--csv={alone}")
    run = job(3, *flags, "--min-workers=1", data=tokens)
    until(lambda: len(run.steps()) > 5, run)
    run.of_rank[1].kill()
    run.wait()
    assert re.search(r"lost rank 1 \(.*?\); 2 ranks continue from step", run.text()), run.text()
    expected, found = losses(alone), losses(run.csv)
    assert found.keys() == expected.keys() == set(range(1, 301))
    # A line that was lost with the worker is made up for by those that go on, and covers their samples alone.
    others = [step for step in expected if found[step] != pytest.approx(expected[step], rel=0.02, abs=2e-3)]
    assert len(others) <= 1, [(step, found[step], expected[step]) for step in others]


def test_survivors_go_on_from_memory_and_a_new_worker_joins(job):
    run = job(3, "--min-workers=2", "--epochs=400", "--log-every=1")
    until(lambda: len(run.steps()) > 50, run)
    run.of_rank[2].kill()
    until(lambda: "lost rank 2" in run.text(), run)
    lost = re.search(r"lost rank 2 \(.*?\); 2 ranks continue from step (\d+), sample ([\d,]+) "
                     r"\(rank 2 \(.*died or was cut off", run.text())
    assert int(lost.group(1)) >= 50
    run.start(2)
    run.wait(run.workers[2])
    assert re.search(r"joined by rank 2 \(.*\); 3 ranks continue from step", run.text())
    run.check_samples(400, fewest=2)
    assert [worker.returncode for worker in run.workers] == [0, 0, -signal.SIGKILL, 0]
    assert run.accuracy() > 95


def start_sharing(job, folder, stage, *flags):
    return job(3, "--min-workers=1", f"--zero-stage={stage}", "--global-batch-size=96", "--epochs=40",
               "--log-every=1", "--checkpoint-every=20", f"--checkpoint-dir={folder}", *flags)


@pytest.mark.parametrize("stage, lost, files", [
    (1, [2], []), (2, [0], ["optimizer"]), (3, [0, 1], ["param", "optimizer"])])
def test_workers_that_share_a_model_go_back_to_its_checkpoint_when_one_is_lost(
        job, home, data, tmp_path, stage, lost, files):
    """One that is left has no part of theirs. So every step is done by all that are there, and its
    loss is that of one worker but for the rounding of sums."""
    alone = home.folder / "alone.csv"
    home.trainer(f"--data={data}", "--batch-size=96", "--epochs=40", "--log-every=1", f"--csv={alone}")
    run = start_sharing(job, tmp_path / "saved", stage,
                        *(f"--offload-{what}={home.folder}" for what in files))
    until(lambda: len(run.steps()) > 50, run)
    for rank in lost:
        run.of_rank[rank].kill()
    they_continue = ["", "1 rank continues", "2 ranks continue"][3 - len(lost)]
    until(lambda: f"{they_continue} from step" in run.text(), run)
    back = int(re.findall(r"resumed from \S+ at step (\d+)\n", run.text())[-1])
    assert back >= 40 and back % 20 == 0
    assert f"{they_continue} from step {back}, sample {back * 96:,}" in run.text()
    run.start(lost[-1])
    until(lambda: "joined by" in run.text(), run)
    run.wait()
    run.check_samples(40)
    assert [worker.returncode for worker in run.workers if worker.returncode != 0] \
        == [-signal.SIGKILL] * len(lost)
    expected, found = losses(alone), losses(run.csv)
    assert found.keys() == expected.keys()
    assert found == pytest.approx(expected, rel=0.02, abs=2e-3)


def test_workers_that_share_a_model_and_have_no_checkpoint_yet_begin_anew(job, tmp_path):
    run = start_sharing(job, tmp_path / "saved", 2, "--checkpoint-every=100000")
    until(lambda: len(run.steps()) > 20, run)
    run.of_rank[1].kill()
    run.wait()
    assert re.search(r"no checkpoint in \S+ yet: starting from the beginning", run.text()), run.text()
    assert "2 ranks continue from step 0, sample 0 " in run.text()
    run.check_samples(40)


def test_workers_that_share_a_model_asked_to_make_room_save_it_together(job, tmp_path):
    flags = ["--checkpoint-every=100000", "--epochs=100000"]
    run = start_sharing(job, tmp_path / "saved", 3, *flags)
    until(lambda: len(run.steps()) > 20, run)
    for worker in run.workers:
        worker.send_signal(signal.SIGUSR1)
    run.wait()
    assert {worker.returncode for worker in run.workers} == {75}, run.text()
    [step] = set(re.findall(r"stopped by SIGUSR1: step (\d+) is saved", run.text()))
    again = start_sharing(job, tmp_path / "saved", 1, *flags, "--resume")
    until(lambda: f"resumed from {tmp_path}/saved/step-{int(step):09}.json at step {step}" in again.text(),
          again)


def test_elastic_workers_that_share_a_model_and_do_not_see_one_folder_are_refused(home, data):
    [port] = held_ports(1)
    ranks = [home.start([home.trainer_path, f"--data={data}", "--min-workers=1", "--zero-stage=2",
                         f"--checkpoint-dir={home.folder / str(rank)}", "--checkpoint-every=5"],
                        env=gang_env(rank, 2, port)) for rank in range(2)]
    for rank, process in enumerate(ranks):
        error = process.communicate(timeout=60 * home.build.slowness)[1].decode()
        assert process.returncode == EXIT_USAGE
        assert f"--checkpoint-dir={home.folder / str(rank)}: not every rank can write to this folder" in error


def test_the_first_rank_dies_too_and_its_outputs_move_on(job, tmp_path):
    run = job(3, "--min-workers=2", "--epochs=400", "--log-every=1", "--checkpoint-every=50",
              f"--checkpoint-dir={tmp_path}/saved")
    until(lambda: len(run.steps()) > 60, run)
    run.of_rank[0].kill()
    until(lambda: "lost rank 0" in run.workers[1].output.read_text(), run)
    run.start(0)
    run.wait()
    assert re.search(r"joined by rank 2 ", run.workers[1].output.read_text()), run.text()
    run.check_samples(400, fewest=2)
    last = max(run.steps())
    assert (tmp_path / "saved" / f"step-{last:09}.safetensors").exists()
    assert run.accuracy() > 95


def test_elastic_workers_asked_to_make_room_save_a_checkpoint_and_end_with_the_code_for_that(
        job, tmp_path):
    run = job(2, "--min-workers=1", "--epochs=100000", "--log-every=1",
              f"--checkpoint-dir={tmp_path}/saved")
    until(lambda: len(run.steps()) > 20, run)
    for worker in run.workers:
        worker.send_signal(signal.SIGUSR1)
    run.wait()
    assert [worker.returncode for worker in run.workers] == [75, 75], run.text()
    saved = re.search(r"stopped by SIGUSR1: step (\d+) is saved", run.text())
    assert (tmp_path / "saved" / f"step-{int(saved[1]):09}.safetensors").exists()


def test_min_workers_without_a_job_of_several_ranks_is_refused(home, data):
    refused = home.trainer(f"--data={data}", "--min-workers=2", expect=EXIT_USAGE)
    assert refused.err.count("\n") == 1 and "--min-workers=2: this process is not a rank of a job" in refused.err


def test_a_stopped_worker_comes_back_as_a_newcomer(job):
    run = job(3, "--min-workers=2", "--epochs=300", "--log-every=1")
    until(lambda: len(run.steps()) > 50, run)
    run.of_rank[0].send_signal(signal.SIGSTOP)
    until(lambda: "lost rank 0" in run.workers[1].output.read_text(), run)
    run.of_rank[0].send_signal(signal.SIGCONT)
    run.wait()
    assert re.search(r"joined by rank 2 \(", run.text()), run.text()
    assert [worker.returncode for worker in run.workers] == [0, 0, 0]
    run.check_samples(300, fewest=2)


def test_a_worker_that_wakes_when_the_others_are_done_does_not_train_again(job):
    run = job(3, "--min-workers=1", "--epochs=400", "--log-every=1")
    until(lambda: len(run.steps()) > 50, run)
    run.of_rank[1].send_signal(signal.SIGSTOP)
    run.wait(run.workers[1])
    run.of_rank[1].send_signal(signal.SIGCONT)
    run.wait()
    assert "the other workers continued without this one" in run.workers[1].output.read_text()
    assert [worker.returncode for worker in run.workers] == [0, 0, 0]
    run.check_samples(400, fewest=2)


def test_too_few_wait_and_then_end_with_the_reason(job):
    run = job(3, "--min-workers=2", "--epochs=100000", "--log-every=1", "--rendezvous-timeout=3")
    until(lambda: len(run.steps()) > 20, run)
    run.of_rank[0].kill()
    run.of_rank[1].kill()
    run.wait()
    assert run.workers[2].returncode == 1
    assert "waited 3 s" in run.text() and "--min-workers=2 are needed to continue" in run.text()


def test_half_of_the_workers_do_not_go_on_beside_the_other_half(job):
    """Rank 0 is stopped, not dead: the other cannot know that it does not train."""
    run = job(2, "--min-workers=1", "--epochs=100000", "--log-every=1", "--rendezvous-timeout=4")
    until(lambda: len(run.steps()) > 20, run)
    run.of_rank[0].send_signal(signal.SIGSTOP)
    run.wait(run.workers[0])
    assert run.workers[1].returncode == 1
    assert "did not answer and may still be training" in run.text()


def test_a_worker_of_a_submitted_job_that_is_killed_is_started_anew_and_joins(home, data):
    home.dtrain("submit", "--name=elastic", "--workers=3", "--min-workers=2", "--max-restarts=2",
                "--", f"--data={data}", "--no-progress",
                "--epochs=500", "--log-every=20", f"--peer-timeout={4 * home.build.slowness}")

    def instances():
        return {each["name"]: each for each in home.get("elastic")["instances"]}

    patience = PATIENCE * home.build.slowness
    harness.until(lambda: "| step " in home.dtrain("logs", "elastic").out, "it trains", PATIENCE)
    before = instances()["worker-1"]["pid"]
    os.kill(before, signal.SIGKILL)
    home.dtrain("wait", "elastic", f"--timeout={patience}s", seconds=PATIENCE + 10)
    assert instances()["worker-1"]["pid"] != before
    assert home.get("elastic")["restarts"] == 0
    out = re.sub(r"(?m)^.*\| step .*\n", "", home.dtrain("logs", "elastic").out)
    assert re.search(r"lost rank 1 \(.*[23] ranks continue from step", out), out
    assert re.search(r"worker-1 on .* ended with signal 9 \(SIGKILL\): restarted \(1 of 2\)", out)
    assert re.search(r"joined by rank 2 \(.*3 ranks continue", out), out
    assert len(re.findall("held-out accuracy", out)) == 1


@pytest.mark.parametrize("workers", [1, 3])
def test_workers_that_fail_while_all_others_wait_to_be_started_anew_fail_the_job(home, workers):
    home.submit("spins", "sh", "-c", "exit 3",
                flags=[f"--workers={workers}", f"--min-workers={workers}", "--max-restarts=4"])
    home.dtrain("wait", "spins", expect=harness.EXIT_JOB_FAILED)
    job = home.get("spins")
    assert job["status"] == "FAILED" and job["cause"]["exitCode"] == 3
    assert home.dtrain("logs", "spins").out.count("restarted") == 4


@dataclasses.dataclass(frozen=True)
class Event:
    """What befalls a worker."""
    moment: str
    fault: str
    rank: int
    step: int = 50         # Of "in training": when so many are logged.
    delay: float = 0       # As the ranks meet: how long after their start.
    stopped: float = 0.3   # Of "stop and go on".
    second: int = 0        # Of "two": who is killed while the others form anew,
    between: float = 0.05  # and how long after the first.
    away: float = 0.05     # Before it is started anew.


def come(run, event, whole):
    """Waits for the moment of an event in a run of so many steps."""
    if event.moment == "as the ranks meet":
        time.sleep(event.delay)
    else:
        is_there = {
            "as they share the state": lambda: "network" in run.text(),
            "in training": lambda: len(run.steps()) > event.step,
            "at the end": lambda: max(run.steps(), default=0) >= whole - 3 or not run.running()}
        harness.until(is_there[event.moment], run.text, PATIENCE, longest_pause=0.01)


def befall(run, event):
    worker = run.of_rank[event.rank]
    if event.fault == "cut off":
        if worker.poll() is None:
            cut_off(worker)
    elif event.fault.startswith("stop"):
        worker.send_signal(signal.SIGSTOP)
        if event.fault == "stop and go on":
            time.sleep(event.stopped)
            worker.send_signal(signal.SIGCONT)
    else:
        worker.kill()
        worker.wait()
        if event.fault == "two":
            time.sleep(event.between)
            run.of_rank[event.second].kill()
            run.of_rank[event.second].wait()
            if event.second != event.rank:
                run.start(event.second)
        if event.fault != "kill":
            time.sleep(event.away)
            run.start(event.rank)


def check_all_is_trained_once(run, epochs, events):
    stopped = []
    for event in events:
        come(run, event, epochs * SAMPLES // (BATCH * run.size))
        if event.fault == "stop":
            stopped.append(run.of_rank[event.rank])
        befall(run, event)
    killed = [worker for worker in run.workers if worker.returncode == -signal.SIGKILL]
    run.wait(*stopped)
    assert "held-out" in run.text()
    for worker in run.workers:
        # One that comes when all is done finds nobody.
        is_late = f"waited {run.seconds_to_meet} s" in worker.output.read_text()
        assert worker.poll() == 0 or worker in killed + stopped or is_late, run.text()
    run.check_samples(epochs)
    assert run.accuracy() > 90


def start_saving(job, folder, workers, fewest, epochs, transport, every, stage=0):
    return job(workers, f"--min-workers={fewest}", f"--epochs={epochs}", "--log-every=1",
               f"--checkpoint-every={every}", f"--checkpoint-dir={folder}",
               f"--transport={transport}", f"--zero-stage={stage}")


# Those that are started anew are fewer than may train: should the others be done by then, they find
# nobody, and do not begin anew.
@pytest.mark.parametrize("workers, fewest, transport, event", [
    (3, 2, "tcp", Event("in training", "cut off", 1)),
    (4, 3, "auto", Event("in training", "two", 1, second=2)),
    (3, 2, "auto", Event("as they share the state", "kill and restart", 1)),
], ids=["cut off", "two killed and started anew", "killed before the first step"])
def test_every_sample_is_trained_on_once(job, tmp_path, workers, fewest, transport, event):
    run = start_saving(job, tmp_path / "saved", workers, fewest, 400, transport, 70)
    check_all_is_trained_once(run, 400, [event])


def by_chance(chance, workers, fewest, steps):
    """Events that some worker survives with the state."""
    moments = ["as the ranks meet", "as they share the state", "at the end", "in training"]
    faults = ["kill", "stop", "cut off", "kill and restart", "stop and go on", "two"]
    events = []
    safe = chance.randrange(workers)  # Someone keeps the state, or all begin anew.
    others = [rank for rank in range(workers) if rank != safe]
    for moment in chance.sample(moments, chance.choice([1, 2])):
        fault = chance.choice(faults)
        before = [event.fault for event in events]
        is_ending = "at the end" in [moment, *(event.moment for event in events)]
        # Where one may live and train elsewhere, those that go on are more than half.
        if fault == "stop" and before or "stop" in before and fault in ("stop", "two", *KILLS):
            fault = "stop and go on"
        if "kill" in before and fault in ("kill", "two"):
            fault = "kill and restart"
        if moment == "as the ranks meet" and fault in ("kill", "stop"):
            fault = "kill and restart"  # Nobody is led by a rank 0 that never was.
        if is_ending and fault in ("two", *KILLS) and (fewest == 1 or before):
            fault = "kill"  # Those that are started when all is over would be enough to begin anew.
        events.append(Event(moment, fault, chance.choice(others), chance.randrange(1, steps // 2),
                            chance.uniform(0, 0.08), chance.choice([0.01, 0.3, 3]),
                            chance.choice(others), chance.uniform(0, 0.1),
                            chance.choice([0, 0.05, 0.5])))
    return events


@soak
@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + ROUNDS))
def test_whatever_happens_to_a_worker_every_sample_is_trained_on_once(job, tmp_path, seed):
    chance = random.Random(seed)
    workers, epochs, fewest = chance.choice([3, 4]), chance.choice([40, 120]), chance.choice([1, 2])
    events = by_chance(chance, workers, fewest, epochs * SAMPLES // (BATCH * workers))
    run = start_saving(job, tmp_path / "saved", workers, fewest, epochs,
                       chance.choice(["auto", "tcp"]), 7, chance.choice([0, 0, 1, 2, 3]))
    try:
        check_all_is_trained_once(run, epochs, events)
    except BaseException:
        print(f"seed {seed}: {events} of {workers}\n{run.text()}")
        raise
