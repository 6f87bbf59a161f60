"""Jobs of this machine that are suspended, resumed and scaled."""
import os
import re

from checkpoint_files import last_saved
from harness import EXIT_NOT_FOUND, EXIT_USAGE, until
from trainer_process import NO_END, ending_when_told, tell_end

SLEEP = ("sh", "-c", "echo rank $RANK of $WORLD_SIZE; exec sleep 600")
GPUS = {"DTRAIN_LOCAL_GPUS": "4"}
ELASTIC = ["--min-workers=1", "--max-workers=4"]


def phases(home, name):
    return [instance["status"] for instance in home.get(name)["instances"]]


def requested(home):
    [node] = home.dtrain("top", "node", "-o", "json", env=GPUS).json()
    return node["requestedGPUs"]


def test_a_suspended_job_holds_nothing_and_runs_again_with_its_environment(home):
    home.submit("pause", "sh", "-c", "echo run with $COLOUR; exec sleep 600",
                flags=["--workers=2", "--gpus=1"], env={"COLOUR": "red", **GPUS})
    home.running("pause")
    before = home.get("pause")
    assert requested(home) == 2
    assert home.dtrain("suspend", "pause").out == "job/pause suspended\n"
    assert home.processes() == []
    job = home.get("pause")
    assert (job["status"], job["reason"]) == ("SUSPENDED", "suspended")
    assert phases(home, "pause") == ["Suspended", "Suspended"]
    assert requested(home) == 0
    again = home.dtrain("suspend", "pause")
    assert (again.out, again.err) == ("", "job/pause is suspended already\n")
    assert "dtrain resume pause" in home.dtrain("explain", "pause").out
    taken = home.submit("other", *SLEEP, flags=["--gpus=1"], env=GPUS)
    home.dtrain("resume", "pause", env={"COLOUR": "blue", **GPUS})
    home.running("pause")
    assert requested(home) == 3, taken.err
    after = home.get("pause")
    assert (after["uuid"], after["restarts"]) == (before["uuid"], 0)
    lines = lambda: home.lines("pause", "-i", "worker-1")
    until(lambda: lines() == ["run with red"] * 2, "the log goes on, with the environment")
    assert home.dtrain("resume", "pause", env=GPUS).err == "job/pause is not suspended\n"
    home.dtrain("delete", "pause", "other")
    home.wait_for_no_processes()


def test_a_suspended_job_can_be_deleted_and_waited_for(home):
    home.submit("pause", "sh", "-c", "[ -e go ] || exec sleep 600; echo done")
    home.running("pause")
    home.dtrain("suspend", "pause")
    follower = home.start([home.dtrain_path, "logs", "-f", "pause"])
    waiter = home.start([home.dtrain_path, "wait", "pause"])
    (home.folder / "go").touch()
    home.dtrain("resume", "pause")
    assert waiter.wait(30 * home.build.slowness) == 0
    assert follower.communicate(timeout=30 * home.build.slowness)[0] == b"done\n"
    home.submit("gone", *SLEEP)
    home.running("gone")
    home.dtrain("suspend", "gone")
    home.dtrain("delete", "gone")
    home.dtrain("resume", "gone", expect=EXIT_NOT_FOUND)
    assert list((home.state / "dtrain/jobs/local/default").iterdir()) == [
        home.state / "dtrain/jobs/local/default/pause"]


def test_ranks_have_the_grace_period_to_save_what_they_have(home):
    home.submit("save", "sh", "-c",
                "trap 'sleep 0.3; echo saved > saved; exit 1' TERM; echo up; while :; do sleep 0.05; done",
                flags=["--max-restarts=2", "--grace-period=5s"])
    until(lambda: home.lines("save") == ["up"], "it runs")
    home.dtrain("suspend", "save")
    assert (home.folder / "saved").exists()
    assert home.get("save")["restarts"] == 0
    home.submit("deaf", "sh", "-c", "trap '' TERM; echo up; while :; do sleep 1; done",
                flags=["--grace-period=200ms"])
    until(lambda: home.lines("deaf") == ["up"], "it runs")
    home.dtrain("suspend", "deaf")
    assert home.get("deaf")["status"] == "SUSPENDED"
    assert home.processes() == []


def test_the_trainer_goes_on_from_its_checkpoint_when_resumed(home, data):
    """It has no end before it is suspended."""
    home.submit("train", *ending_when_told(home), f"--data={data}", NO_END, "--no-progress",
                "--log-every=20", "--checkpoint-every=20", "--resume", "--keep=3",
                f"--checkpoint-dir={home.folder}/saved", flags=["--workers=2"])
    until(lambda: last_saved(home.folder / "saved") >= 100, "checkpoints")
    home.dtrain("suspend", "train")
    tell_end(home, last_saved(home.folder / "saved") + 100)
    home.dtrain("resume", "train")
    home.dtrain("wait", "train", f"--timeout={120 * home.build.slowness}s", seconds=130)
    text = home.dtrain("logs", "train", "-i", "worker-0").out
    assert re.search(r"(?m)^resumed from .* at step ", text), text
    steps = [int(step) for step in re.findall(r"(?m)^step +(\d+)", text)]
    assert steps.count(min(steps)) == 1  # it did not begin anew


def test_scale_adds_workers_beside_those_that_run_and_takes_the_last_away(home):
    home.submit("grow", *SLEEP, flags=["--workers=2", "--gpus=1", *ELASTIC], env=GPUS)
    home.running("grow")
    follower = home.start([home.dtrain_path, "logs", "-f", "grow"])
    pids = lambda: [each["pid"] for each in home.get("grow")["instances"]]
    first = pids()
    out = home.dtrain("scale", "grow", "--workers=3", env=GPUS).out
    assert out == "job/grow scaled to 3 workers\n"
    until(lambda: phases(home, "grow") == ["Running"] * 3, "the third runs")
    assert pids()[:2] == first
    until(lambda: home.lines("grow", "-i", "worker-2") == ["rank 2 of 3"], "it knows its rank")
    assert home.get("grow")["requestGPUs"] == 3 and requested(home) == 3
    hosts = home.state / "dtrain/jobs/local/default/grow/hostfile"
    assert hosts.read_text() == "localhost slots=3\n"
    home.dtrain("scale", "grow", "--workers=1", env=GPUS)
    until(lambda: pids() == first[:1] and requested(home) == 1, "the first is left")
    assert hosts.read_text() == "localhost slots=1\n"
    home.dtrain("suspend", "grow")
    home.dtrain("scale", "grow", "--workers=4", env=GPUS)
    assert len(phases(home, "grow")) == home.get("grow")["requestGPUs"] == 4
    home.dtrain("resume", "grow", env=GPUS)
    until(lambda: phases(home, "grow") == ["Running"] * 4, "four run")
    result = home.dtrain("scale", "grow", "--workers=5", expect=EXIT_USAGE)
    assert "--max-workers=4" in result.err and result.err.count("\n") == 1
    assert home.dtrain("clone", "grow", "--name=x", "--dry-run", "-o", "yaml",
                       env=GPUS).out.count("workers: 4") == 1
    home.dtrain("delete", "grow")
    followed = follower.communicate(timeout=30 * home.build.slowness)[0]
    assert b"worker-2 | rank 2 of 3\n" in followed  # came later
    home.wait_for_no_processes()


def test_tensorboard_stays_behind_the_workers_as_they_come_and_go(home):
    tools = home.folder / "tools"
    tools.mkdir()
    (tools / "tensorboard").write_text("#!/bin/sh\nexec sleep 600\n")
    (tools / "tensorboard").chmod(0o755)
    home.submit("board", "sh", "-c", "echo $RANK; until [ -e go ]; do sleep 0.05; done",
                flags=["--workers=2", "--tensorboard", f"--logdir={home.folder}", *ELASTIC],
                env={"PATH": f"{tools}:{os.environ['PATH']}"})
    names = lambda: [each["name"] for each in home.get("board")["instances"]
                     if each["status"] == "Running"]
    until(lambda: len(names()) == 3, "it runs")
    home.dtrain("scale", "board", "--workers=3")
    until(lambda: names() == ["worker-0", "worker-1", "worker-2", "tensorboard-0"], "one more runs")
    until(lambda: home.lines("board", "-i", "worker-2") == ["2"], "it knows its rank")
    home.dtrain("scale", "board", "--workers=1")
    until(lambda: names() == ["worker-0", "tensorboard-0"], "one is left")
    (home.folder / "go").touch()
    home.dtrain("wait", "board")


def test_the_trainer_takes_in_new_workers_and_goes_on_without_the_last(home, data):
    """It has no end before it is suspended; batches of one size, for its end is a sample."""
    home.submit("train", *ending_when_told(home), f"--data={data}", NO_END, "--no-progress",
                "--log-every=20", f"--peer-timeout={4 * home.build.slowness}", "--resume",
                "--global-batch-size=128", "--checkpoint-every=100", "--keep=3",
                f"--checkpoint-dir={home.folder}/saved",
                flags=["--workers=2", *ELASTIC])
    text = lambda: home.dtrain("logs", "train").out
    until(lambda: re.search(r"step +\d+ +epoch", text()), "it trains")
    home.dtrain("scale", "train", "--workers=3")
    until(lambda: re.search(r"joined by rank 2 .*3 ranks continue", text()), text)
    home.dtrain("scale", "train", "--workers=2")
    until(lambda: re.search(r"lost rank 2 .*2 ranks continue", text()), text)
    until(lambda: last_saved(home.folder / "saved"), "a checkpoint")
    home.dtrain("suspend", "train")
    tell_end(home, last_saved(home.folder / "saved") + 100)
    home.dtrain("resume", "train")
    home.dtrain("wait", "train", f"--timeout={90 * home.build.slowness}s", seconds=100)
    assert len(re.findall("held-out accuracy", text())) == 1


def test_what_has_ended_or_is_not_elastic_cannot_be_changed(home):
    home.submit("over", "true", flags=ELASTIC)
    home.dtrain("wait", "over")
    for verb in (["suspend", "over"], ["resume", "over"], ["scale", "over", "--workers=2"]):
        result = home.dtrain(*verb, expect=EXIT_USAGE)
        assert "has already ended (SUCCEEDED)" in result.err and result.err.count("\n") == 1
    home.dtrain("suspend", "nobody", expect=EXIT_NOT_FOUND)
    home.submit("rigid", *SLEEP)
    home.running("rigid")
    result = home.dtrain("suspend", "over", "nobody", "rigid", expect=EXIT_NOT_FOUND)
    assert result.out == "job/rigid suspended\n" and result.err.count("\n") == 2
    home.dtrain("resume", "rigid")
    home.running("rigid")
    result = home.dtrain("scale", "rigid", "--workers=2", expect=EXIT_USAGE)
    assert "not elastic" in result.err and result.err.count("\n") == 1
    assert phases(home, "rigid") == ["Running"]
    home.dtrain("delete", "rigid")


def test_a_job_whose_data_is_gone_stays_suspended(home):
    (home.folder / "data").mkdir()
    home.submit("keep", *SLEEP, flags=[f"--data-dir={home.folder}/data"])
    home.running("keep")
    home.dtrain("suspend", "keep")
    (home.folder / "data").rmdir()
    result = home.dtrain("resume", "keep", expect=EXIT_USAGE)
    assert "cannot mount" in result.err and result.err.count("\n") == 1
    assert home.get("keep")["status"] == "SUSPENDED"


def test_whoever_comes_first_resumes_a_job_once(home):
    home.submit("race", "sh", "-c", "echo up; exec sleep 600")
    for run in range(1, 6):
        until(lambda: len(home.lines("race")) == run, "one more run")
        home.dtrain("suspend", "race")
        racers = [home.start([home.dtrain_path, "resume", "race"]) for _ in range(4)]
        assert [racer.wait() for racer in racers] == [0] * 4
    until(lambda: len(home.lines("race")) == 6, "the last run")
    # Guard, supervisor, rank: the losers' own end after they have answered.
    until(lambda: len(home.processes()) == 3, "three processes")
    home.dtrain("delete", "race")
