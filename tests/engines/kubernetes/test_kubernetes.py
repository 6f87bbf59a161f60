"""Jobs on a real two-node cluster: see fixtures.py."""
import json
import os
import pathlib
import threading
import time

import pytest

from engines.kubernetes.fixtures import BUSYBOX, FASHION, HERE, TRAINER, everything_of, until
from harness import EXIT_ENGINE, EXIT_JOB_FAILED, EXIT_NOT_FOUND, EXIT_USAGE


def test_kubectl_starts_a_job_from_a_dry_run_and_dtrain_knows_it(kube, cluster):
    plan = kube.dtrain("submit", "--name=applied", BUSYBOX, "--workers=2", "--dry-run", "--", "sh",
                       "-c", "echo I am $RANK of $WORLD_SIZE").out
    cluster.kubectl("apply", "-f", "-", stdin=plan)
    kube.wait_for_end("applied", 0)
    assert sorted(kube.lines("applied")) == ["worker-0 | I am 0 of 2", "worker-1 | I am 1 of 2"]
    assert [each["name"] for each in kube.get("applied")["instances"]] == ["worker-0", "worker-1"]
    cluster.kubectl("delete", "-f", "-", stdin=plan)
    kube.dtrain("get", "applied", expect=EXIT_NOT_FOUND)
    cluster.kubectl("apply", "-f", "-", stdin=plan)
    kube.dtrain("delete", "applied")
    assert json.loads(everything_of(cluster, "applied", "service", "configmap", "secret"))["items"] == []
    until(lambda: cluster.kubectl("get", "job,pod", "-l", "dtrain/job=applied", "-o", "name") == "",
          "its Job and Pods are gone")


def test_ranks_on_two_nodes_find_each_other(kube):
    # busybox's nslookup does not use the search list: the name in full.
    kube.submit("ring", "sh", "-c", "echo $RANK of $WORLD_SIZE; for i in 0 1 2; do until nslookup "
                "ring-worker-$i.ring.default.svc.cluster.local; do sleep 0.2; done; done >/dev/null 2>&1",
                flags=[BUSYBOX, "--workers=3", "--gpus=3"])
    kube.dtrain("logs", "-f", "ring")
    job = kube.wait_for_end("ring", 0)
    assert {instance["node"] for instance in job["instances"]} == {"node1", "node2"}
    for rank in range(3):
        assert kube.lines("ring", "-i", f"worker-{rank}") == [f"{rank} of 3"]


def test_logs_are_followed_from_before_the_pods_exist_to_their_end(kube):
    kube.submit("follow", "sh", "-c", "for i in 1 2 3; do echo $i; sleep 0.3; done",
                flags=[BUSYBOX, "--workers=2"])
    lines = kube.dtrain("logs", "-f", "follow").out.splitlines()
    assert sorted(line.split()[-1] for line in lines) == ["1", "1", "2", "2", "3", "3"]


def test_no_answer_is_left_unread(kube):
    """Of answers that came at once, libcurl left one unread in 1 of 60 runs."""
    kube.submit("often", "seq", "300", flags=[BUSYBOX])
    kube.wait_for_end("often", 0)
    for _ in range(60):
        assert len(kube.dtrain("logs", "often").out.splitlines()) == 300


def test_a_failed_rank_ends_the_job_and_is_its_cause(kube):
    kube.submit("fails", "sh", "-c", "[ $RANK = 1 ] && { echo oops >&2; exit 3; }; sleep 600",
                flags=[BUSYBOX, "--workers=3"])
    kube.dtrain("wait", "fails", expect=EXIT_JOB_FAILED)
    cause = kube.get("fails")["cause"]
    assert (cause["rank"], cause["exitCode"], cause["lastStderr"]) == (1, 3, ["oops"])


def test_arguments_and_environment_arrive_byte_exact(kube):
    odd = b"a \"b\" $c `d` {{e}} #f\n\xff"
    kube.submit("argv", "printf", "%s|", "$ODD", os.fsdecode(odd), flags=[BUSYBOX])
    kube.submit("env", "sh", "-c", 'printf "%s|" "$ODD"', flags=[BUSYBOX, "--env=ODD=" + os.fsdecode(odd)])
    for name, words in ("argv", b"$ODD|" + odd + b"|"), ("env", odd + b"|"):
        kube.wait_for_end(name, 0)
        out = kube.dtrain("logs", name, "-i", "worker-0").out
        assert os.fsencode(out).removesuffix(b"\n") == words.removesuffix(b"\n")


@pytest.mark.parametrize("flags, words", [
    (["--image=localhost/none:1", "--image-pull-policy=Never"],
     "cannot pull the image: ErrImageNeverPull"),
    (["--image=172.30.0.1:9/none:1"], "cannot pull the image: ErrImagePull"),
    ([BUSYBOX, "--gpus=9"], "no node matches: Unschedulable: 0/2 nodes are available: "
     "2 Insufficient nvidia.com/gpu."),
    ([BUSYBOX, "--selector=zone=moon"], "no node matches: Unschedulable: 0/2 nodes are available: "
     "2 node(s) didn't match Pod's node affinity/selector."),
])
def test_a_job_that_cannot_start_says_why_within_seconds(kube, flags, words):
    kube.submit("waits", "true", flags=flags)
    until(lambda: words in kube.get("waits")["reason"], f"the reason has: {words}")
    assert kube.status("waits") == "PENDING"
    explained = kube.dtrain("explain", "waits").out
    assert words in explained or "ImagePullBackOff" in explained


def test_a_quota_is_named_as_the_reason(kube, cluster):
    cluster.kubectl("create", "namespace", "small")
    try:
        cluster.kubectl("-n", "small", "create", "quota", "few", "--hard=pods=0")
        kube.dtrain("submit", "--name=quota", "-n", "small", BUSYBOX, "--", "true")
        until(lambda: "exceeded quota: few" in
              kube.dtrain("get", "quota", "-n", "small", "-o", "json").json()["reason"],
              "the quota is named")
        assert "the namespace's quota is used up: " in kube.dtrain("explain", "quota", "-n",
                                                                   "small").out
    finally:
        cluster.kubectl("delete", "namespace", "small", "--wait=false")


def test_pods_pass_the_restricted_level(kube, cluster):
    cluster.kubectl("create", "namespace", "strict")
    try:
        cluster.kubectl("label", "namespace", "strict", "pod-security.kubernetes.io/enforce=restricted")
        kube.dtrain("submit", "--name=strict", "-n", "strict", BUSYBOX, "--wait", "--", "true")
    finally:
        cluster.kubectl("delete", "namespace", "strict", "--wait=false")


@pytest.mark.api
def test_a_submission_on_a_pipe_is_not_told_step_by_step(kube):
    result = kube.submit("steps", "true", flags=[BUSYBOX, "--workers=2"])
    assert result.out == "job/steps submitted\n" and result.err.count("\n") == 1
    result = kube.submit("steps", "true", flags=[BUSYBOX], expect=EXIT_USAGE)
    assert result.err.count("\n") == 1


@pytest.mark.api
def test_a_taken_name_is_refused_and_what_is_not_ours_is_left_alone(kube, cluster):
    kube.submit("twice", "true", flags=[BUSYBOX])
    kube.dtrain("submit", "--name=twice", BUSYBOX, "--", "true", expect=EXIT_USAGE)
    cluster.kubectl("create", "configmap", "foreign", "--from-literal=a=b")
    try:
        result = kube.dtrain("submit", "--name=foreign", BUSYBOX, "--", "true", expect=EXIT_USAGE)
        assert "not dtrain's" in result.err
        assert "a: b" in cluster.kubectl("get", "configmap", "foreign", "-o", "yaml")
        kube.dtrain("get", "foreign", expect=EXIT_NOT_FOUND)
    finally:
        cluster.kubectl("delete", "configmap", "foreign")


def test_deletion_takes_every_object_along(kube, cluster):
    kube.submit("gone", "sleep", "600", flags=[BUSYBOX, "--workers=2"])
    kube.dtrain("delete", "gone")
    until(lambda: not cluster.kubectl("get", "job,pod,service,configmap,secret", "-o", "name",
                                      "-l", "dtrain/job=gone"), "all is gone")


@pytest.mark.api
def test_no_cluster_is_said_in_one_line(kube):
    result = kube.dtrain("list", env={"KUBECONFIG": "/nowhere"}, expect=EXIT_ENGINE)
    assert "no Kubernetes cluster is configured" in result.err
    assert result.err.count("\n") == 1


@pytest.mark.api
def test_a_server_that_does_not_answer_is_said_in_one_line(kube):
    config = kube.folder / "nobody"
    config.write_text(pathlib.Path(kube.env["KUBECONFIG"]).read_text().replace(
        "https://172.30.0.1:6443", "https://127.0.0.1:1"))
    for words in (["list"], ["submit", "--name=away", BUSYBOX, "--", "true"],
                  ["exec", "away", "--", "true"]):
        result = kube.dtrain(*words, env={"KUBECONFIG": str(config)}, expect=EXIT_ENGINE)
        assert "cannot reach the cluster at https://127.0.0.1:1" in result.err
        assert result.err.count("\n") == 1


@pytest.mark.api
def test_what_is_forbidden_is_said_in_the_clusters_words(kube, cluster):
    config = kube.folder / "stranger"
    config.write_text(pathlib.Path(cluster.kubeconfig).read_text().replace(
        "users: [{name: u, user: {", "users: [{name: u, user: {as: stranger, "))
    for words in (["list"], ["get", "x"], ["logs", "x"], ["delete", "x"], ["wait", "x"],
                  ["submit", "--name=forbidden", BUSYBOX, "--", "true"]):
        result = kube.dtrain(*words, env={"KUBECONFIG": str(config)}, expect=EXIT_ENGINE)
        assert 'User "stranger" cannot' in result.err and "(Forbidden)" in result.err
        assert result.err.count("\n") == 1
    result = kube.dtrain("check", env={"KUBECONFIG": str(config)}, expect=None)
    assert "missing: create jobs" in result.out


def test_logs_go_on_through_a_crash_of_the_api_server(kube, cluster):
    kube.submit("crash", "sh", "-c", "for i in $(seq 100 120); do echo $i; sleep 0.5; done",
                flags=[BUSYBOX, "--workers=2"])
    until(lambda: kube.status("crash") == "RUNNING", "the job runs")
    result = {}
    reader = threading.Thread(target=lambda: result.update(
        logs=kube.dtrain("logs", "-f", "crash", seconds=120)))
    reader.start()
    time.sleep(2)  # Lines are flowing: the crash comes amid them, wherever that is.
    cluster.run("crash-apiserver")
    reader.join()
    numbers = sorted(line.split()[-1] for line in result["logs"].out.splitlines())
    assert numbers == sorted(str(i) for i in range(100, 121) for _ in range(2))


def test_the_smallest_role_suffices(kube, cluster):
    text = (HERE.parents[2] / "backends/kubernetes/README.md").read_text()
    role = text.split("```yaml\n")[1].split("```")[0]
    cluster.kubectl("apply", "-f", "-", stdin=role)
    cluster.kubectl("create", "rolebinding", "dtrain", "--role=dtrain", "--user=minimal")
    config = kube.folder / "minimal.kubeconfig"
    config.write_text(pathlib.Path(cluster.kubeconfig).read_text().replace(
        "users: [{name: u, user: {", "users: [{name: u, user: {as: minimal, "))
    env = {"KUBECONFIG": str(config)}
    try:
        kube.dtrain("submit", "--name=least", BUSYBOX, "--wait", "--", "echo", "hi", env=env)
        assert "hi" in kube.dtrain("logs", "least", env=env).out
        assert "least" in kube.dtrain("list", env=env).out
        # Who may not look for a claim learns from the reason that there is none.
        kube.dtrain("submit", "--name=leasts", BUSYBOX, "--data=none:/data", "--", "true", env=env)
        until(lambda: 'a volume does not exist: Unschedulable: 0/2 nodes are available: '
              'persistentvolumeclaim "none" not found' in kube.dtrain("explain", "leasts",
                                                                      env=env).out, "why")
        kube.dtrain("delete", "least", env=env)
    finally:
        cluster.kubectl("delete", "role,rolebinding", "dtrain")


@pytest.mark.skipif(not FASHION.is_dir(), reason="needs Debian's dataset-fashion-mnist")
def test_the_mlp_trains_in_three_pods_on_two_nodes(kube, trainer_image):
    kube.submit("mlp", "--data=/data", "--epochs=1", flags=[TRAINER, "--workers=3", "--gpus=3"])
    kube.dtrain("logs", "-f", "mlp", seconds=180)
    job = kube.wait_for_end("mlp", 0)
    assert {instance["node"] for instance in job["instances"]} == {"node1", "node2"}
    last = kube.lines("mlp", "-i", "worker-0")[-1]
    assert float(last.split()[2]) > 80, last


@pytest.mark.skipif(not FASHION.is_dir(), reason="needs Debian's dataset-fashion-mnist")
def test_four_workers_train_with_two_parameter_servers(kube, trainer_image):
    kube.submit("served", "--data=/data", "--steps=200", flags=[TRAINER, "--workers=4", "--ps=2"])
    kube.dtrain("logs", "-f", "served", seconds=180)
    job = kube.wait_for_end("served", 0)
    assert [instance["name"] for instance in job["instances"]][-2:] == ["ps-0", "ps-1"]
    lines = kube.lines("served", "-i", "worker-0")
    assert float(lines[-1].split()[2]) > 60, lines
    assert any("2 parameter servers" in line for line in lines), lines
