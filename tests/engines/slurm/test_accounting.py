"""On a Slurm that keeps accounts by a real slurmdbd: one more cluster, for these tests alone."""
import os
import shutil
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
    assert "--account=nosuch (sacctmgr show associations" in result.err
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
    failed, cancelled = slurm.get("failed"), slurm.get("cancelled")
    assert failed["cause"]["exitCode"] == 5 and failed["cause"]["message"] == "exit code 5"
    assert cancelled["reason"] == "cancelled in Slurm (scancel)"
    listed = {job["name"]: job for job in slurm.dtrain("list", "-o", "json").json()}
    for job in failed, cancelled, listed["failed"], listed["cancelled"]:
        assert job["status"] == "FAILED"
        assert before <= job["startTimestamp"] <= job["endTimestamp"] <= time.time()
