"""Jobs as JobSets, by JobSet's own controller."""
import json

import pytest

from engines.kubernetes.fixtures import BUSYBOX, TRAINER, until
from harness import EXIT_JOB_FAILED, EXIT_NOT_FOUND, EXIT_USAGE

SET = "--api=jobset"


@pytest.fixture(scope="module")
def controller(cluster):
    try:
        cluster.run("start-jobset")
        yield
    finally:
        cluster.run("stop-jobset")


@pytest.fixture
def sets(controller, kube):
    return kube


def objects_of(cluster, name):
    return cluster.kubectl("get", "jobset,job,pod,service,configmap,secret", "-o", "name",
                           "-l", f"dtrain/job={name}")


@pytest.mark.api
def test_a_cluster_without_jobsets_is_told_so(kube):
    result = kube.submit("noset", "true", flags=[BUSYBOX, SET], expect=EXIT_USAGE)
    assert "--api=jobset: the cluster has no JobSet (jobset.x-k8s.io/v1alpha2)" in result.err
    kube.dtrain("get", "noset", expect=EXIT_NOT_FOUND)


def test_a_jobset_runs_is_followed_and_is_listed_as_one_job(sets, cluster):
    sets.submit("set", "sh", "-c", "echo rank $RANK of $WORLD_SIZE at $MASTER_ADDR",
                flags=[BUSYBOX, SET, "--workers=3", "--label=team=a"])
    out = sets.dtrain("logs", "-f", "set", seconds=90).out
    assert sorted(line.split("| ")[1] for line in out.splitlines()) == [
        f"rank {rank} of 3 at set-worker-0-0.set" for rank in range(3)]
    job = sets.wait_for_end("set", 0)
    assert [i["name"] for i in job["instances"]] == [f"worker-{rank}" for rank in range(3)]
    assert {i["status"] for i in job["instances"]} == {"Succeeded"}
    [row] = sets.dtrain("list", "-o", "json", "--selector=team=a").json()
    assert (row["name"], row["status"]) == ("set", "SUCCEEDED")
    sets.submit("set", "true", flags=[BUSYBOX, SET], expect=EXIT_USAGE)
    # A Job of the same name would take the Service of the set away.
    sets.submit("set", "true", flags=[BUSYBOX], expect=EXIT_USAGE)
    assert "service/set" in objects_of(cluster, "set")
    sets.dtrain("delete", "set")
    until(lambda: not objects_of(cluster, "set"), "all is gone", 60)


def test_a_rank_that_fails_starts_all_ranks_of_a_set_anew_and_then_fails_it(sets):
    sets.submit("anew", "sh", "-c",
                "echo try $DTRAIN_RESTART_COUNT; [ $RANK = 1 ] && exit 3; exec sleep 600",
                flags=[BUSYBOX, SET, "--workers=2", "--max-restarts=1"])
    sets.dtrain("wait", "anew", expect=EXIT_JOB_FAILED, seconds=120)
    job = sets.get("anew")
    assert (job["status"], job["restarts"]) == ("FAILED", 1)
    assert (job["cause"]["instance"], job["cause"]["exitCode"]) == ("worker-1", 3)
    assert job["cause"]["lastStderr"] == ["try 1"]


def test_a_set_is_suspended_and_resumed_and_not_scaled(sets, cluster):
    sets.submit("stop", "sleep", "600", flags=[BUSYBOX, SET, "--workers=2"])
    sets.running("stop", 60)
    sets.dtrain("suspend", "stop")
    until(lambda: "pod/" not in objects_of(cluster, "stop"), "its Pods are gone", 60)
    assert (sets.get("stop")["status"], sets.get("stop")["reason"]) == ("SUSPENDED", "suspended")
    sets.dtrain("resume", "stop")
    sets.running("stop", 60)
    result = sets.dtrain("scale", "stop", "--workers=3", expect=EXIT_USAGE)
    assert "a JobSet" in result.err and result.err.count("\n") == 1


def test_a_launcher_and_its_workers_are_one_set(sets, cluster, trainer_image):
    sets.dtrain("submit", "mpijob", "--name=mpiset", TRAINER, SET, "--workers=2", "--", "mpirun",
                "-np", "2", "sh", "-c", "echo $OMPI_COMM_WORLD_RANK $(hostname)")
    job = sets.wait_for_end("mpiset", 0)
    assert [i["name"] for i in job["instances"]] == ["launcher-0", "worker-0", "worker-1"]
    assert sorted(sets.lines("mpiset", "-i", "launcher-0")) == [
        "0 mpiset-worker-0-0", "1 mpiset-worker-0-1"]
    [made] = json.loads(cluster.kubectl("get", "jobset", "-l", "dtrain/job=mpiset", "-o",
                                        "json"))["items"]
    assert made["spec"]["successPolicy"]["targetReplicatedJobs"] == ["launcher"]


def test_servers_that_ask_for_less_are_a_job_of_the_set_which_ends_them(sets, cluster):
    sets.dtrain("submit", "tfjob", "--name=lesser", BUSYBOX, SET, "--gpus=1", "--workers=2", "--ps=1",
                "--success-policy=AllWorkers",
                "--", "sh", "-c", "echo $ROLE_NAME ${RANK-none}; [ $ROLE_NAME = worker ] || sleep 600")
    job = sets.wait_for_end("lesser", 0)
    assert [(each["name"], each["requestGPUs"]) for each in job["instances"]] == [
        ("worker-0", 1), ("worker-1", 1), ("ps-0", 0)]
    [row] = [row for row in sets.dtrain("list", "-o", "json").json() if row["name"] == "lesser"]
    assert (row["status"], row["requestGPUs"]) == ("SUCCEEDED", 2)
    assert sets.lines("lesser", "-i", "worker-1") == ["worker 1"]
    until(lambda: "pod/lesser-ps" not in objects_of(cluster, "lesser"), "the server has ended", 60)
    sets.dtrain("delete", "lesser")
    until(lambda: not objects_of(cluster, "lesser"), "all is gone", 60)
