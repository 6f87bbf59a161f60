"""On a Slurm that keeps accounts by a real slurmdbd: one more cluster, for these tests alone."""
import os
import pathlib
import shutil
import signal
import subprocess
import time

import pytest

from engines.slurm.fixtures import cluster_up
from harness import EXIT_ENGINE, EXIT_JOB_FAILED, until

pytestmark = pytest.mark.xdist_group("slurm-accounting")


@pytest.fixture(scope="module")
def slurm_cluster():
    with cluster_up(DBD="1", NODES="2") as cluster:
        yield cluster


@pytest.fixture
def slurm(slurm_home):
    return slurm_home


def test_an_account_that_slurmdbd_does_not_know_is_refused_with_where_to_look(slurm):
    result = slurm.dtrain("submit", "--name=paid", "--account=nosuch", "--", "true",
                          expect=EXIT_ENGINE)
    assert "--account=nosuch (see sacctmgr show associations" in result.err
    assert result.err.count("\n") == 1
    assert slurm.dtrain("list", "-o", "name").out == ""
    slurm.submit("paid", "echo", "ran", flags=["--account=team"])
    slurm.wait_for_end("paid", 0)
    assert slurm.lines("paid") == ["ran"]


def test_what_slurm_has_forgotten_is_told_by_sacct(slurm, slurm_cluster):
    """What the ranks and the script left in the folders is lost too."""
    before = int(time.time())
    slurm.submit("failed", "sh", "-c", "exit 5")
    slurm.submit("cancelled", "sleep", "600")
    slurm.running("cancelled")
    slurm_cluster.call("scancel", slurm.get("cancelled")["uuid"])
    numbers = [slurm.get(name)["uuid"] for name in ("failed", "cancelled")]
    for name in "failed", "cancelled":
        slurm.dtrain("wait", name, expect=EXIT_JOB_FAILED)

    def told():
        return (slurm_cluster.call("squeue", "--noheader", "--states=all"),
                slurm_cluster.call("sacct", "--noheader", "--allocations", "--parsable2",
                                   "--format=State", f"--jobs={','.join(numbers)}").split())
    until(lambda: told() == ("", ["FAILED", "CANCELLED", "by", str(os.getuid())]),
          "Slurm has forgotten the jobs, and sacct knows how they ended", 120)
    for name in "failed", "cancelled":
        folder = slurm.state / "dtrain/slurm/default" / name
        (folder / "runs").unlink()
        shutil.rmtree(folder / "0")
        (folder / "slurm.log").unlink()
    failed, cancelled = slurm.get("failed"), slurm.get("cancelled")
    assert failed["cause"]["exitCode"] == 5 and failed["cause"]["message"] == "exit code 5"
    assert cancelled["reason"] == "cancelled in Slurm (scancel)"
    listed = {job["name"]: job for job in slurm.dtrain("list", "-o", "json").json()}
    for job in failed, cancelled, listed["failed"], listed["cancelled"]:
        assert job["status"] == "FAILED"
        assert before <= job["startTimestamp"] <= job["endTimestamp"] <= time.time()


def test_where_slurmdbd_is_down_jobs_are_found_and_it_is_said(slurm, slurm_cluster):
    slurm.submit("failed", "sh", "-c", "exit 5")
    slurm.dtrain("wait", "failed", expect=EXIT_JOB_FAILED)
    number = slurm.get("failed")["uuid"]
    until(lambda: number not in slurm_cluster.call("squeue", "--noheader", "--states=all",
                                                   "--format=%i").split(),
          "Slurm has forgotten the job", 120)
    folder = slurm.state / "dtrain/slurm/default/failed"
    (folder / "runs").unlink()
    shutil.rmtree(folder / "0")
    run = pathlib.Path(slurm_cluster.folder, "run")
    noted = pathlib.Path(slurm_cluster.folder, "log/jobcomp.log")
    os.kill(int((run / "slurmdbd.pid").read_text()), signal.SIGKILL)
    try:
        job = slurm.get("failed")  # As the file has it in which Slurm notes jobs that have ended.
        assert job["cause"]["exitCode"] == 5 and job["endTimestamp"] >= job["startTimestamp"] > 0
        noted.rename(f"{noted}.away")
        job = slurm.get("failed")
        assert job["status"] == "FAILED"
        assert "accounting database does not answer" in job["reason"]
        assert "slurmdbd" in job["reason"] or "refused" in job["reason"]
        assert slurm.dtrain("list", "-o", "name").out == "job/failed\n"
        slurm.submit("next", "echo", "ran")
        slurm.wait_for_end("next", 0)
        slurm.dtrain("delete", "failed")
    finally:
        if not noted.exists():
            pathlib.Path(f"{noted}.away").rename(noted)
        subprocess.run(["/usr/sbin/slurmdbd"], check=True, env={
            **os.environ, "SLURM_CONF": slurm_cluster.conf, "MYSQL_UNIX_PORT": f"{run}/mysql.sock"})
