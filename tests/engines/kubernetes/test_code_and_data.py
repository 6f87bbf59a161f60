"""Code, data and secrets of jobs on a cluster."""
import base64
import functools
import http.server
import json
import os
import re
import subprocess
import threading

import pytest

from engines.kubernetes.fixtures import BUSYBOX, TRAINER, everything_of, until
from harness import EXIT_ENGINE, EXIT_JOB_FAILED, EXIT_USAGE

ODD = b"it's \"odd\" $HOME \xff"


def test_secrets_reach_the_ranks_byte_exact_and_are_in_the_secret_alone(kube, cluster):
    file = kube.folder / "env"
    file.write_bytes(b"ODD=" + ODD + b"\nPASS=swordfish\n")
    flags = [BUSYBOX, f"--env-file={file}"]
    command = ["sh", "-c", 'printf "%s|%s" "$ODD" "$PASS"']
    plan = kube.dtrain("submit", "--name=sec", *flags, "--dry-run", "--", *command).out
    assert "PASS=***" in plan and "swordfish" not in plan
    kube.submit("sec", *command, flags=flags)
    kube.wait_for_end("sec", 0)
    out = os.fsencode(kube.dtrain("logs", "sec", "-i", "worker-0").out)
    assert out.removesuffix(b"\n") == ODD + b"|swordfish"
    assert "swordfish" not in everything_of(cluster, "sec", "job", "pod", "configmap")
    assert "swordfish" not in kube.dtrain("get", "sec", "-o", "json").out


def test_a_secret_of_the_cluster_is_taken_by_name_and_must_be_there(kube, cluster):
    result = kube.submit("none", "true", flags=[BUSYBOX, "--secret=keys"], expect=EXIT_USAGE)
    assert "--secret=keys" in result.err and result.err.count("\n") == 1
    cluster.kubectl("create", "secret", "generic", "keys", "--from-literal=KEY=of the cluster")
    try:
        kube.submit("uses", "sh", "-c", "echo $KEY", flags=[BUSYBOX, "--secret=keys"])
        kube.wait_for_end("uses", 0)
        assert kube.lines("uses", "-i", "worker-0") == ["of the cluster"]
    finally:
        cluster.kubectl("delete", "secret", "keys")


def test_files_and_folders_are_mounted_as_asked(kube, tmp_path):
    (tmp_path / "app.conf").write_text("depth = 3\n")
    data = tmp_path / "data"
    data.mkdir(mode=0o777)
    data.chmod(0o777)
    (data / "in").write_text("samples\n")
    tmp_path.chmod(0o755)
    kube.submit("mount", "sh", "-c", "cat /etc/app.conf /in/in; touch /in/x || echo read only; "
                "touch /out/y && echo written",
                flags=[BUSYBOX, f"--config-file={tmp_path}/app.conf:/etc/app.conf",
                       f"--data-dir={data}:/in:ro", f"--data-dir={data}:/out"])
    kube.wait_for_end("mount", 0)
    lines = [line for line in kube.lines("mount", "-i", "worker-0") if "touch:" not in line]
    assert lines == ["depth = 3", "samples", "read only", "written"]


@pytest.mark.api
def test_a_claim_that_is_not_there_is_refused_and_nothing_is_made(kube, cluster):
    result = kube.submit("claims", "true", flags=[BUSYBOX, "--data=missing:/data"], expect=EXIT_USAGE)
    assert "--data=missing" in result.err and result.err.count("\n") == 1
    assert json.loads(everything_of(cluster, "claims", "job", "secret", "configmap"))["items"] == []


@pytest.mark.api
def test_the_claims_of_the_namespace_are_listed_beside_named_data(kube, cluster):
    cluster.kubectl("apply", "-f", "-", stdin="""
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: listed}
spec: {accessModes: [ReadWriteMany], storageClassName: none, resources: {requests: {storage: 3Gi}}}
""")
    try:
        kube.dtrain("data", "add", "mine", "--path=/mnt/mine")
        rows = [line.split() for line in kube.dtrain("data", "list").out.splitlines()]
        assert ["mine", "path", "/mnt/mine"] in rows
        assert ["listed", "the", "cluster's", "claim", "Pending,", "3Gi,", "ReadWriteMany"] in rows
        assert "listed" not in kube.dtrain("data", "list", "-b", "local").out
        config = kube.folder / "nowhere"
        config.write_text(re.sub(r"server: [^,}]*", "server: https://127.0.0.1:1",
                                 open(cluster.kubeconfig).read()))
        result = kube.dtrain("data", "list", f"--kubeconfig={config}", expect=EXIT_ENGINE)
        assert "/mnt/mine" in result.out and result.err.count("\n") == 1
    finally:
        cluster.kubectl("delete", "pvc", "listed")


def test_a_claim_is_mounted(kube, cluster):
    cluster.kubectl("apply", "-f", "-", stdin="""
apiVersion: v1
kind: PersistentVolume
metadata: {name: training}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteMany]
  storageClassName: test
  hostPath: {path: /tmp}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: training}
spec:
  accessModes: [ReadWriteMany]
  storageClassName: test
  resources: {requests: {storage: 1Gi}}
""")
    try:
        kube.submit("claim", "sh", "-c", "grep ' /data ' /proc/mounts | cut -d' ' -f4 | cut -d, -f1",
                    flags=[BUSYBOX, "--data=training:/data:ro"])
        kube.wait_for_end("claim", 0)
        assert kube.lines("claim", "-i", "worker-0") == ["ro"]
        kube.dtrain("delete", "claim")
    finally:
        cluster.kubectl("delete", "pvc,pv", "training", "--wait=false")


def test_a_quota_that_demands_limits_lets_code_be_brought(kube, cluster):
    cluster.kubectl("create", "namespace", "limited")
    try:
        cluster.kubectl("-n", "limited", "create", "quota", "all",
                        "--hard=limits.cpu=1,limits.memory=256Mi,requests.cpu=500m")
        kube.dtrain("submit", "--name=limits", "-n", "limited", BUSYBOX, "--worker-cpu=500m",
                    "--worker-cpu-limit=1", "--worker-memory=256Mi", "--gpus=1", "--sync-mode=git",
                    "--sync-source=http://172.30.0.1:9/none.git", "--", "true")
        [pod] = until(lambda: json.loads(cluster.kubectl("-n", "limited", "get", "pods", "-o",
                                                         "json"))["items"], "it has a Pod")
        assert pod["spec"]["initContainers"][0]["resources"] == {
            "limits": {"cpu": "1", "memory": "256Mi"},
            "requests": {"cpu": "500m", "memory": "256Mi"}}
    finally:
        cluster.kubectl("delete", "namespace", "limited", "--wait=false")


class AskingHandler(http.server.SimpleHTTPRequestHandler):
    """Files, for those who say the password."""

    def do_GET(self):
        wanted = "Basic " + base64.b64encode(b"ann:opensesame").decode()
        if self.headers.get("Authorization") != wanted:
            self.send_response(401)
            self.send_header("WWW-Authenticate", "Basic")
            self.end_headers()
        else:
            super().do_GET()

    def log_message(self, *words):
        pass


@pytest.fixture
def repository(tmp_path):
    """The address of a Git repository that Pods reach, behind a password."""
    work = tmp_path / "work"
    work.mkdir()
    (work / "train.sh").write_text("echo the code of $(cat name)\n")
    (work / "name").write_text("main\n")
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C"]
    for words in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-qm", "x"]):
        subprocess.run([*git, work, *words], check=True)
    bare = tmp_path / "code.git"
    subprocess.run(["git", "clone", "-q", "--bare", work, bare], check=True)
    subprocess.run(["git", "-C", bare, "update-server-info"], check=True)
    handler = functools.partial(AskingHandler, directory=tmp_path)
    with http.server.ThreadingHTTPServer(("172.30.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://172.30.0.1:{server.server_port}/code.git"
        server.shutdown()
        thread.join()


def test_code_of_a_repository_is_there_before_the_command_and_its_token_is_nowhere(
        kube, cluster, repository, trainer_image):
    flags = [TRAINER, "--workers=2", "--sync-mode=git", f"--sync-source={repository}@main",
             "--sync-user=ann"]
    token = {"DTRAIN_GIT_TOKEN": "opensesame"}
    kube.submit("code", "sh", "train.sh", flags=flags, env=token)
    kube.wait_for_end("code", 0)
    for rank in range(2):
        assert kube.lines("code", "-i", f"worker-{rank}") == ["the code of main"]
    assert "opensesame" not in everything_of(cluster, "code", "job", "pod", "configmap")
    plan = kube.dtrain("submit", "--name=plan", *flags, "--dry-run", "--", "true", env=token).out
    assert "opensesame" not in plan


def test_code_that_cannot_be_had_is_the_cause_in_gits_own_words(kube, repository, trainer_image):
    flags = [TRAINER, "--sync-mode=git", f"--sync-source={repository}@nowhere", "--sync-user=ann"]
    kube.submit("noref", "true", flags=flags, env={"DTRAIN_GIT_TOKEN": "opensesame"})
    kube.dtrain("wait", "noref", expect=EXIT_JOB_FAILED)
    cause = kube.get("noref")["cause"]
    assert cause["instance"] == "worker-0" and cause["exitCode"] != 0
    assert "nowhere" in cause["lastStderr"][-1]
