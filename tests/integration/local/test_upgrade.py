"""Jobs and checkpoints of earlier releases, as their programs left them (tests/upgrade/make)."""
import shutil

import pytest

from harness import EXIT_JOB_FAILED, EXIT_NOT_FOUND


@pytest.fixture
def release(home, earlier_release):
    shutil.copytree(earlier_release / "state/dtrain", home.state / "dtrain")
    return earlier_release


def test_jobs_of_an_earlier_release_are_listed_and_looked_at(home, release):
    jobs = {job["name"]: job for job in home.dtrain("list", "-o", "json").json()}
    assert {name: job["status"] for name, job in jobs.items()} == {
        "done": "SUCCEEDED", "failed": "FAILED", "roles": "SUCCEEDED", "trained": "SUCCEEDED"}
    assert home.dtrain("list", "-l", "team=vision", "-o", "name").out == "job/done\n"
    failed = home.get("failed")
    assert (failed["restarts"], failed["cause"]["instance"], failed["cause"]["exitCode"]) == (1, "worker-1", 7)
    assert failed["cause"]["lastStderr"] == ["no such file"]
    assert [each["name"] for each in home.get("roles")["instances"]] == ["chief-0", "worker-0", "ps-0", "evaluator-0"]
    for verb in "get", "explain":
        for name in jobs:
            home.dtrain(verb, name)
    home.dtrain("wait", "failed", expect=EXIT_JOB_FAILED)


def test_logs_of_an_earlier_release_are_read(home, release):
    assert sorted(home.lines("done")) == ["worker-0 | rank 0", "worker-1 | rank 1"]
    assert home.lines("done", "-i", "worker-1", "--tail=1") == ["rank 1"]
    assert "no such file" in home.dtrain("logs", "failed", "--previous", "-i", "worker-1").out
    assert "epoch 2.00/2" in home.dtrain("logs", "trained").out


def test_jobs_of_an_earlier_release_are_submitted_again_and_deleted(home, release):
    home.dtrain("clone", "done", "--name=again")
    home.dtrain("wait", "again")
    assert sorted(home.lines("again")) == ["worker-0 | rank 0", "worker-1 | rank 1"]
    home.dtrain("delete", "done", "failed", "roles", "trained", "again")
    assert home.dtrain("list", "-o", "name").out == ""
    home.dtrain("get", "done", expect=EXIT_NOT_FOUND)


def test_a_checkpoint_of_an_earlier_release_is_gone_on_from(home, release, data):
    folder = home.folder / "checkpoints"
    shutil.copytree(release / "checkpoints", folder)
    out = home.trainer(f"--data={data}", "--hidden=8", "--epochs=3", f"--checkpoint-dir={folder}", "--resume").out
    assert "epoch 3.00/3" in out and "step 80" not in out and "epoch 2.00/3" not in out
