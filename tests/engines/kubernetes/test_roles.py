"""Jobs whose instances are not all workers."""
import json

from engines.kubernetes.fixtures import BUSYBOX
from harness import EXIT_JOB_FAILED, EXIT_USAGE

WHO = 'echo "$ROLE_NAME $ROLE_RANK of $ROLE_WORLD_SIZE, rank ${RANK-none} of ${WORLD_SIZE-none}"'


def test_parameter_servers_and_the_evaluator_end_when_the_ranks_have_succeeded(kube):
    kube.dtrain("submit", "tfjob", "--name=tf", BUSYBOX, "--workers=2", "--ps=1", "--chief",
                "--evaluator", "--success-policy=AllWorkers", "--", "sh", "-c",
                f"{WHO}; case $ROLE_NAME in ps|evaluator) exec sleep 600;; esac; sleep 1")
    job = kube.wait_for_end("tf", 0)
    assert job["trainer"] == "TFJOB"
    assert [instance["name"] for instance in job["instances"]] == [
        "chief-0", "worker-0", "worker-1", "ps-0", "evaluator-0"]
    assert {instance["status"] for instance in job["instances"]} == {"Succeeded"}
    assert kube.lines("tf", "-i", "chief-0") == ["chief 0 of 1, rank 0 of 3"]
    assert kube.lines("tf", "-i", "worker-1") == ["worker 1 of 2, rank 2 of 3"]


def test_a_parameter_server_that_fails_is_the_cause(kube):
    kube.dtrain("submit", "tfjob", "--name=psfail", BUSYBOX, "--workers=1", "--ps=2", "--",
                "sh", "-c", "[ $ROLE_NAME$ROLE_RANK = ps1 ] || exec sleep 600; echo lost; exit 4")
    kube.dtrain("wait", "psfail", expect=EXIT_JOB_FAILED)
    cause = kube.get("psfail")["cause"]
    assert (cause["instance"], cause["exitCode"], cause["lastStderr"]) == ("ps-1", 4, ["lost"])


def test_the_first_of_a_pytorchjob_is_its_master(kube):
    kube.dtrain("submit", "pytorchjob", "--name=torch", BUSYBOX, "--workers=2",
                "--nproc-per-node=2", "--", "sh", "-c",
                "echo $PET_NODE_RANK of $PET_NNODES at $PET_MASTER_ADDR; "
                "echo $TF_CONFIG > /dev/null")
    job = kube.wait_for_end("torch", 0)
    assert [instance["name"] for instance in job["instances"]] == ["master-0", "worker-0"]
    assert kube.lines("torch", "-i", "worker-0") == ["1 of 2 at torch-worker-0.torch"]


def test_tf_config_names_hosts_that_resolve(kube):
    kube.dtrain("submit", "tfjob", "--name=conf", BUSYBOX, "--workers=1", "--ps=1",
                "--ps-port=4321", "--", "sh", "-c", "echo $TF_CONFIG")
    kube.wait_for_end("conf", 0)
    config = json.loads(kube.lines("conf", "-i", "worker-0")[0])
    assert config == {"cluster": {"worker": ["conf-worker-0.conf:2222"],
                                  "ps": ["conf-worker-1.conf:4321"]},
                      "task": {"type": "worker", "index": 0}}


def test_roles_that_ask_for_different_things_are_refused_by_name(kube):
    result = kube.dtrain("submit", "tfjob", "--name=mix", BUSYBOX, "--gpus=1", "--ps=1", "--",
                         "true", expect=EXIT_USAGE)
    assert "--ps-gpus=1" in result.err and result.err.count("\n") == 1
