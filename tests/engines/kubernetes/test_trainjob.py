"""Jobs as TrainJobs, by Kubeflow Trainer's own controller and JobSet's."""
import pytest

from engines.kubernetes.fixtures import BUSYBOX, TRAINER, until
from harness import EXIT_JOB_FAILED, EXIT_NOT_FOUND, EXIT_USAGE

TRAINJOB = "--api=trainjob"


@pytest.fixture(scope="module")
def controllers(cluster):
    try:
        cluster.run("start-jobset")
        cluster.run("start-trainjob")
        yield
    finally:
        cluster.run("stop-trainjob")
        cluster.run("stop-jobset")


@pytest.fixture
def trainer(controllers, kube):
    return kube


def objects_of(cluster, name):
    return cluster.kubectl("get", "trainjob,trainingruntime,jobset,job,pod,service,configmap,secret",
                           "-o", "name", "-l", f"dtrain/job={name}")


@pytest.mark.api
def test_a_cluster_without_trainjobs_is_told_so(kube):
    result = kube.submit("notj", "true", flags=[BUSYBOX, TRAINJOB], expect=EXIT_USAGE)
    assert "--api=trainjob: the cluster has no JobSet" in result.err
    kube.dtrain("get", "notj", expect=EXIT_NOT_FOUND)


def test_a_trainjob_runs_is_followed_and_is_listed_as_one_job(trainer, cluster):
    trainer.submit("tj", "sh", "-c", "echo rank $RANK of $WORLD_SIZE at $MASTER_ADDR",
                   flags=[BUSYBOX, TRAINJOB, "--workers=3", "--label=team=tj"])
    out = trainer.dtrain("logs", "-f", "tj", seconds=90).out
    assert sorted(line.split("| ")[1] for line in out.splitlines()) == [
        f"rank {rank} of 3 at tj-worker-0-0.tj" for rank in range(3)]
    job = trainer.wait_for_end("tj", 0)
    assert [i["name"] for i in job["instances"]] == [f"worker-{rank}" for rank in range(3)]
    [row] = trainer.dtrain("list", "-o", "json", "--selector=team=tj").json()
    assert (row["name"], row["status"]) == ("tj", "SUCCEEDED")
    cluster.kubectl("wait", "--for=condition=Complete", "trainjob/tj", "--timeout=30s")
    result = trainer.submit("tj", "true", flags=[BUSYBOX, TRAINJOB], expect=EXIT_USAGE)
    assert "job tj exists in namespace default (SUCCEEDED)" in result.err
    trainer.dtrain("delete", "tj")
    until(lambda: not objects_of(cluster, "tj"), "all is gone", 60)
    trainer.dtrain("get", "tj", expect=EXIT_NOT_FOUND)


def test_a_trainjob_that_has_no_jobset_yet_is_listed_and_says_so(trainer, cluster):
    cluster.run("pause-trainjob")
    try:
        trainer.submit("tjearly", "true", flags=[BUSYBOX, TRAINJOB, "--workers=2", "--gpus=1",
                                                 "--label=team=early"])
        assert "jobset" not in objects_of(cluster, "tjearly")
        [row] = trainer.dtrain("list", "-o", "json", "--selector=team=early").json()
        assert (row["name"], row["status"], row["requestGPUs"]) == ("tjearly", "PENDING", 2)
        job = trainer.get("tjearly")
        assert (job["status"], job["reason"]) == (
            "PENDING", "Kubeflow Trainer has created no JobSet for its TrainJob yet; check that its "
            "controller runs")
        assert [i["name"] for i in job["instances"]] == ["worker-0", "worker-1"]
    finally:
        cluster.run("resume-trainjob")
    trainer.wait_for_end("tjearly", 0)
    assert [row["status"] for row in trainer.dtrain(
        "list", "-o", "json", "--selector=team=early").json()] == ["SUCCEEDED"]


def test_a_rank_that_fails_fails_its_trainjob(trainer, cluster):
    trainer.submit("tjfail", "sh", "-c", "[ $RANK = 1 ] && exit 3; exec sleep 600",
                   flags=[BUSYBOX, TRAINJOB, "--workers=2"])
    trainer.dtrain("wait", "tjfail", expect=EXIT_JOB_FAILED, seconds=120)
    job = trainer.get("tjfail")
    assert (job["status"], job["cause"]["instance"], job["cause"]["exitCode"]) == (
        "FAILED", "worker-1", 3)
    cluster.kubectl("wait", "--for=condition=Failed", "trainjob/tjfail", "--timeout=30s")


def test_a_trainjob_is_suspended_and_resumed(trainer, cluster):
    trainer.submit("tjstop", "sleep", "600", flags=[BUSYBOX, TRAINJOB, "--workers=2"])
    trainer.running("tjstop", 60)
    trainer.dtrain("suspend", "tjstop")
    until(lambda: "pod/" not in objects_of(cluster, "tjstop"), "its Pods are gone", 60)
    assert trainer.get("tjstop")["reason"] == "suspended"
    trainer.dtrain("resume", "tjstop")
    trainer.running("tjstop", 60)


def test_a_launcher_and_its_workers_are_one_trainjob(trainer, trainer_image):
    trainer.dtrain("submit", "mpijob", "--name=tjmpi", TRAINER, TRAINJOB, "--workers=2", "--",
                   "mpirun", "-np", "2", "sh", "-c", "echo $OMPI_COMM_WORLD_RANK $(hostname)")
    job = trainer.wait_for_end("tjmpi", 0)
    assert [i["name"] for i in job["instances"]] == ["launcher-0", "worker-0", "worker-1"]
    assert sorted(trainer.lines("tjmpi", "-i", "launcher-0")) == [
        "0 tjmpi-worker-0-0", "1 tjmpi-worker-0-1"]


def test_what_a_cut_off_submission_left_does_not_stand_in_the_way(trainer, cluster):
    trainer.submit("tjleft", "true", flags=[BUSYBOX, TRAINJOB])
    trainer.wait_for_end("tjleft", 0)
    cluster.kubectl("delete", "trainjob/tjleft", "--cascade=orphan")
    assert "trainingruntime" in objects_of(cluster, "tjleft")
    cluster.kubectl("delete", "jobset,service,configmap,secret", "-l", "dtrain/job=tjleft")
    trainer.submit("tjleft", "echo", "again", flags=[BUSYBOX, TRAINJOB])
    trainer.wait_for_end("tjleft", 0)
    trainer.dtrain("submit", "--name=plan", BUSYBOX, TRAINJOB, "--dry-run=server", "--", "true")
