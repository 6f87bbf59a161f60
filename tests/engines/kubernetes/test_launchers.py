"""Types whose launcher starts what runs at the workers."""
import json
import re

import pytest

from engines.kubernetes.fixtures import BUSYBOX, TRAINER, until
from harness import EXIT_JOB_FAILED

pytestmark = pytest.mark.usefixtures("trainer_image")


CLAIM = """
apiVersion: v1
kind: PersistentVolume
metadata: {{name: training-data}}
spec:
  storageClassName: by-hand
  capacity: {{storage: 1Gi}}
  accessModes: [ReadWriteMany]
  hostPath: {{path: {path}}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {{name: training-data}}
spec:
  storageClassName: by-hand
  accessModes: [ReadWriteMany]
  resources: {{requests: {{storage: 1Gi}}}}
"""


def pods_of(cluster, name):
    return json.loads(cluster.kubectl("get", "pods", "-l", f"dtrain/job={name}", "-o", "json"))["items"]


def submit(kube, kind, name, *command, flags=()):
    kube.dtrain("submit", kind, f"--name={name}", *flags, TRAINER, "--", *command)


@pytest.fixture
def training_data(cluster, tmp_path):
    """A claim of that name, which a folder of this machine stands behind."""
    for folder in tmp_path, tmp_path.parent, tmp_path.parent.parent:
        folder.chmod(0o755)
    data = tmp_path / "training-data"
    data.mkdir()
    data.chmod(0o777)
    cluster.kubectl("apply", "-f", "-", stdin=CLAIM.format(path=data))
    yield data
    cluster.kubectl("delete", "pvc/training-data", "pv/training-data", "--wait=false")


def test_the_line_of_arena_runs_as_a_launcher_and_workers(kube, cluster, training_data):
    kube.dtrain("submit", "etjob", "--name=hello", "--gpus=1", "--workers=3", TRAINER,
                "--data=training-data:/data", "--tensorboard", "--logdir=/data/deepspeed_data",
                "--env=MARK=with the worker's variables",
                "deepspeed /workspace/train_bert_ds.py --checkpoint_dir /data/deepspeed_data")
    kube.dtrain("logs", "-f", "hello", seconds=120)
    job = kube.wait_for_end("hello", 0)
    assert job["trainer"] == "ETJOB"
    assert [(i["name"], i["chief"], i["requestGPUs"]) for i in job["instances"]] == [
        ("launcher-0", True, 0), *((f"worker-{i}", False, 1) for i in range(3))]
    lines = sorted(line for line in kube.lines("hello", "-i", "launcher-0") if "runs" in line)
    for index, line in enumerate(lines):
        assert re.fullmatch(rf"hello-worker-{index}: hello-worker-{index} runs 3 hosts: .* "
                            r"/workspace/train_bert_ds.py --checkpoint_dir /data/deepspeed_data, "
                            r"with the worker's variables", line), line
    assert len(lines) == 3
    written = training_data / "deepspeed_data"
    assert sorted(path.name for path in written.iterdir()) == [
        f"hello-worker-{index}" for index in range(3)]
    assert job["tensorboard"] == "http://hello-tensorboard.default:6006"
    cluster.kubectl("wait", "--for=condition=Available", "deployment/hello-tensorboard",
                    "--timeout=60s")
    until(lambda: {pod["status"]["phase"] for pod in pods_of(cluster, "hello")} == {"Succeeded"},
          "the workers have ended by themselves")
    [row] = [row for row in kube.dtrain("list", "-o", "json").json() if row["name"] == "hello"]
    assert (row["status"], row["requestGPUs"]) == ("SUCCEEDED", 3)


def test_mpirun_starts_processes_at_the_workers_by_its_own_defaults(kube):
    submit(kube, "mpijob", "mpi", "mpirun", "-np", "2", "sh", "-c",
           "echo $OMPI_COMM_WORLD_RANK $(hostname)", flags=["--workers=2"])
    kube.wait_for_end("mpi", 0)
    assert sorted(kube.lines("mpi", "-i", "launcher-0")) == ["0 mpi-worker-0", "1 mpi-worker-1"]


def test_an_etjob_discovers_its_hosts_by_the_script_that_arena_has(kube):
    submit(kube, "etjob", "found", "/usr/local/bin/discover_hosts.sh", flags=["--workers=2"])
    kube.wait_for_end("found", 0)
    assert kube.lines("found", "-i", "launcher-0") == [
        f"found-worker-{index}.found:1" for index in range(2)]


def test_the_launchers_exit_code_is_the_jobs_and_ends_the_workers(kube, cluster):
    submit(kube, "deepspeedjob", "seven", "sh", "-c", "echo lost >&2; exit 7", flags=["--workers=2"])
    kube.dtrain("wait", "seven", expect=EXIT_JOB_FAILED, seconds=120)
    job = kube.get("seven")
    assert (job["status"], job["cause"]["instance"], job["cause"]["exitCode"]) == (
        "FAILED", "launcher-0", 7)
    assert job["cause"]["lastStderr"] == ["lost"]
    until(lambda: {pod["status"]["phase"] for pod in pods_of(cluster, "seven")} <=
          {"Succeeded", "Failed"}, "the workers have ended")


def test_a_launcher_that_begins_anew_finds_its_workers_cleared(kube, cluster):
    # The first run leaves a process at a worker, and fails; the second finds none.
    submit(kube, "mpijob", "anew", "sh", "-c",
           "[ $DTRAIN_RESTART_COUNT = 1 ] && exec ssh -n anew-worker-0.anew '! pgrep -x tail'; "
           "ssh -n anew-worker-0.anew tail -f /dev/null & "
           "until ssh -n anew-worker-0.anew pgrep -x tail; do sleep 0.1; done; exit 1",
           flags=["--workers=1", "--max-restarts=1", "--run-as-user=0"])
    job = kube.wait_for_end("anew", 0)
    assert job["restarts"] == 1
    assert len(pods_of(cluster, "anew")) == 3


def test_a_worker_whose_image_has_no_sshd_is_the_cause(kube):
    kube.dtrain("submit", "mpijob", "--name=nossh", BUSYBOX, "--run-as-user=0", "--", "true")
    kube.dtrain("wait", "nossh", expect=EXIT_JOB_FAILED, seconds=120)
    cause = kube.get("nossh")["cause"]
    assert cause["exitCode"] == 127
    assert "a launcher needs to reach its workers" in cause["lastStderr"][0]


def test_deletion_and_suspension_take_launcher_and_workers(kube, cluster):
    submit(kube, "mpijob", "both", "sleep", "600", flags=["--workers=1"])
    kube.running("both", 60)
    kube.dtrain("suspend", "both")
    until(lambda: not pods_of(cluster, "both"), "no Pods are left")
    kube.dtrain("resume", "both")
    kube.running("both", 60)
    kube.dtrain("delete", "both")
    until(lambda: not cluster.kubectl("get", "job,pod,service,configmap,secret", "-o", "name",
                                      "-l", "dtrain/job=both"), "all is gone", 60)


def test_a_rayjobs_workers_join_the_head_beside_the_first_which_runs_the_command(kube):
    submit(kube, "rayjob", "ray", "sh", "-c", """
        until [ "$(sort -u /tmp/joined 2>/dev/null | wc -l)" = 2 ]; do sleep 0.2; done
        sort -u /tmp/joined; echo "head at $RAY_ADDRESS" """, flags=["--workers=3"])
    kube.wait_for_end("ray", 0)
    lines = kube.lines("ray", "-i", "worker-0")
    assert lines[-3:-1] == ["ray-worker-1", "ray-worker-2"]
    assert lines[-1].startswith("head at ray-worker-0.ray:")
    assert [each["status"] for each in kube.get("ray")["instances"]] == [
        "Succeeded", "Terminated", "Terminated"]
