"""Jobs that are changed while they run, or that the cluster changes."""
import json
import os
import pathlib
import re

import pytest

from engines.kubernetes.crds import METRICS, installed
from engines.kubernetes.fixtures import BUSYBOX, FASHION, TRAINER, until
from harness import EXIT_ENGINE, EXIT_JOB_FAILED, EXIT_NOT_FOUND, EXIT_USAGE

SLEEP = ("sh", "-c", "echo rank $RANK of $WORLD_SIZE; exec sleep 600")


def phases(kube, name):
    return [instance["status"] for instance in kube.get(name)["instances"]]


def pods_of(cluster, name):
    return json.loads(cluster.kubectl("get", "pods", "-l", f"dtrain/job={name}", "-o", "json"))["items"]


def test_a_suspended_job_holds_no_pods_and_runs_again_when_resumed(kube, cluster):
    kube.submit("pause", *SLEEP, flags=[BUSYBOX, "--workers=2", "--gpus=1"])
    kube.running("pause")
    kube.dtrain("suspend", "pause")
    until(lambda: not pods_of(cluster, "pause"), "its Pods are gone")
    job = kube.get("pause")
    assert (job["status"], job["reason"]) == ("SUSPENDED", "suspended")
    assert {each["status"] for each in job["instances"]} == {"Suspended"}
    kube.dtrain("resume", "pause")
    assert kube.running("pause")["restarts"] == 0
    managers = json.loads(cluster.kubectl("get", "job", "pause-worker", "--show-managed-fields",
                                          "-o", "json"))["metadata"]["managedFields"]
    assert ("dtrain-suspend", "Apply") in {(m["manager"], m["operation"]) for m in managers}


def test_scale_adds_workers_beside_those_that_run_and_takes_the_last_away(kube, cluster):
    kube.submit("grow", *SLEEP, flags=[BUSYBOX, "--workers=2"])
    kube.running("grow")
    first = {pod["metadata"]["uid"] for pod in pods_of(cluster, "grow")}
    kube.dtrain("scale", "grow", "--workers=3")
    until(lambda: phases(kube, "grow") == ["Running"] * 3, "the third runs")
    until(lambda: kube.lines("grow", "-i", "worker-2") == ["rank 2 of 3"], "it knows its rank")
    assert first < {pod["metadata"]["uid"] for pod in pods_of(cluster, "grow")}
    kube.dtrain("scale", "grow", "--workers=1")
    until(lambda: phases(kube, "grow") == ["Running"] and len(pods_of(cluster, "grow")) == 1,
          "only the first is left")


def test_a_clone_is_the_same_job_with_the_changes(kube):
    kube.submit("first", "sh", "-c", "echo $A $B '$C' \"{{e}}\"",
                flags=[BUSYBOX, "--env=A=1", "--env=B=1", "--workers=2"])
    kube.wait_for_end("first", 0)
    kube.dtrain("clone", "first", "--name=second", "--env=B=2", "--workers=1", "--wait")
    assert kube.lines("second", "-i", "worker-0") == ["1 2 $C {{e}}"]
    kube.dtrain("clone", "nobody", expect=EXIT_NOT_FOUND)


def test_what_has_ended_cannot_be_changed(kube):
    kube.submit("over", "true", flags=[BUSYBOX])
    kube.wait_for_end("over", 0)
    for verb in (["suspend", "over"], ["scale", "over", "--workers=2"]):
        result = kube.dtrain(*verb, expect=EXIT_USAGE)
        assert "already ended (SUCCEEDED)" in result.err and result.err.count("\n") == 1
    kube.dtrain("suspend", "nobody", expect=EXIT_NOT_FOUND)


def test_an_evicted_rank_is_made_anew_and_counts_as_no_failure(kube, cluster):
    kube.submit("evict", *SLEEP, flags=[BUSYBOX, "--workers=2"])
    kube.running("evict")
    pod = pods_of(cluster, "evict")[0]["metadata"]
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction",
                "metadata": {"name": pod["name"], "namespace": "default"}}
    cluster.kubectl("create", "--raw",
                    f"/api/v1/namespaces/default/pods/{pod['name']}/eviction", "-f", "-",
                    stdin=json.dumps(eviction))
    until(lambda: pod["uid"] not in {p["metadata"]["uid"] for p in pods_of(cluster, "evict")
                                     if p["status"]["phase"] == "Running"}
          and phases(kube, "evict") == ["Running"] * 2, "it runs again", 60)
    assert kube.get("evict")["restarts"] == 0


def test_a_preempted_rank_waits_comes_back_and_counts_as_no_failure(kube, cluster):
    for name, value in ("below", -10), ("above", 10):
        cluster.kubectl("create", "priorityclass", f"dtrain-{name}", f"--value={value}")
    try:
        kube.submit("below", *SLEEP, flags=[BUSYBOX, "--workers=2", "--gpus=8", "--max-restarts=1",
                                            "--priority=dtrain-below", "--preemptible"])
        kube.running("below", 60)
        before = {pod["metadata"]["uid"] for pod in pods_of(cluster, "below")}
        kube.submit("above", *SLEEP, flags=[BUSYBOX, "--gpus=8", "--priority=dtrain-above"])
        kube.running("above", 60)
        until(lambda: "the cluster is busy" in kube.get("below")["reason"], "it says why")
        assert sorted(phases(kube, "below")) == ["Pending", "Running"]
        assert "the cluster is busy" in kube.dtrain("explain", "below").out
        kube.dtrain("delete", "above")
        assert kube.running("below", 60)["restarts"] == 0
        after = {pod["metadata"]["uid"] for pod in pods_of(cluster, "below")
                 if pod["status"]["phase"] == "Running"}
        assert len(before & after) == 1 and len(after) == 2
    finally:
        cluster.kubectl("delete", "priorityclass", "dtrain-below", "dtrain-above")


def test_a_job_is_ended_at_its_timeout_and_says_so(kube):
    kube.submit("late", "sleep", "600", flags=[BUSYBOX, "--running-timeout=3s"])
    result = kube.dtrain("wait", "late", expect=EXIT_JOB_FAILED)
    assert "DeadlineExceeded" in result.err


def test_a_job_is_forgotten_after_its_time(kube):
    kube.submit("brief", "true", flags=[BUSYBOX, "--ttl-after-finished=1s"])
    until(lambda: kube.dtrain("get", "brief", expect=None).code == EXIT_NOT_FOUND, "it is gone", 60)


def test_wait_and_logs_say_why_nothing_runs(kube):
    kube.submit("stuck", "true", flags=["--image=localhost/none:1", "--image-pull-policy=Never"])
    for command in (["wait", "stuck"], ["logs", "-f", "stuck"]):
        process = kube.start([kube.dtrain_path, *command], text=True)
        try:
            line = process.stderr.readline()
            assert "job/stuck waits: worker-0: cannot pull the image: ErrImageNeverPull" in line
        finally:
            process.kill()
            process.communicate()


def test_logs_are_saved_before_a_job_is_deleted(kube):
    kube.submit("keep", "sh", "-c", "echo from $RANK; printf 'no newline'",
                flags=[BUSYBOX, "--workers=2"])
    kube.wait_for_end("keep", 0)
    kube.dtrain("delete", "keep", f"--save-logs={kube.folder}/saved")
    for rank in range(2):
        text = (kube.folder / f"saved/keep/worker-{rank}.log").read_text()
        assert text.removesuffix("\n") == f"from {rank}\nno newline"
    kube.dtrain("get", "keep", expect=EXIT_NOT_FOUND)


def test_a_job_whose_logs_cannot_be_saved_is_kept(kube):
    kube.submit("kept", "echo", "hi", flags=[BUSYBOX])
    kube.wait_for_end("kept", 0)
    (kube.folder / "file").write_text("")
    result = kube.dtrain("delete", "kept", f"--save-logs={kube.folder}/file", expect=1)
    assert "--save-logs" in result.err and result.err.count("\n") == 1
    assert kube.status("kept") == "SUCCEEDED"


def test_top_job_shows_what_the_metrics_api_says_of_the_pods(kube, cluster):
    kube.submit("uses", "sleep", "600", flags=[BUSYBOX, "--workers=2"])
    node = kube.running("uses", 60)["instances"][1]["node"]
    result = kube.dtrain("top", "job", "uses", expect=EXIT_ENGINE)
    assert "metrics-server" in result.err and result.err.count("\n") == 1
    pod = cluster.kubectl("get", "pods", "-l", "dtrain/job=uses,"
                          "batch.kubernetes.io/job-completion-index=1", "-o", "name").strip()
    metrics = {"apiVersion": "metrics.k8s.io/v1beta1", "kind": "PodMetrics",
               "metadata": {"name": pod.removeprefix("pod/"), "labels": {
                   "dtrain/job": "uses", "app.kubernetes.io/managed-by": "dtrain"}},
               "timestamp": "2026-11-21T00:00:00Z", "window": "10s",
               "containers": [{"name": "main", "usage": {"cpu": "1250000000n", "memory": "3Mi"}},
                              {"name": "beside", "usage": {"cpu": "250m", "memory": "1024Ki"}}]}
    with installed(cluster, METRICS):
        cluster.kubectl("create", "-f", "-", stdin=json.dumps(metrics))
        assert kube.dtrain("top", "job", "uses", "-o", "json").json() == [
            {"job": "uses", "name": "worker-1", "node": node, "cpus": 1.5, "memory": 4 << 20,
             "requestGPUs": 0}]
        rows = [line.split() for line in kube.dtrain("top", "job").out.splitlines()]
        assert ["uses", "worker-1", "1.50", "4Mi", "0", node] in rows
    kube.dtrain("delete", "uses")


def test_top_node_counts_the_gpus_asked_for(kube):
    before = {node["name"]: node for node in kube.dtrain("top", "node", "-o", "json").json()}
    assert {node["totalGPUs"] for node in before.values()} == {8}
    kube.submit("gpus", *SLEEP, flags=[BUSYBOX, "--workers=2", "--gpus=5"])
    kube.running("gpus")
    nodes = kube.dtrain("top", "node", "-o", "json").json()
    assert [(node["requestedGPUs"], node["freeGPUs"]) for node in nodes] == [(5, 3), (5, 3)]
    assert "10/16 (62%)" in kube.dtrain("top", "node").out


@pytest.mark.api
def test_the_server_checks_a_plan_and_stores_nothing(kube):
    good = ["submit", "--name=try", BUSYBOX, "--dry-run=server"]
    text = kube.dtrain(*good, "--", "true").out
    assert '"backoffLimit": 2147483647' in text  # a default of the server's
    kube.dtrain("get", "try", expect=EXIT_NOT_FOUND)
    result = kube.dtrain(*good, "--image-pull-policy=Often", "--", "true",
                         expect=EXIT_ENGINE)
    assert 'Unsupported value: "Often"' in result.err and result.err.count("\n") == 1


@pytest.mark.api
def test_the_context_says_which_cluster_and_namespace(kube, cluster, namespaces):
    text = open(cluster.kubeconfig).read()
    config = kube.folder / "two"
    config.write_text(text.replace(
        "contexts: [", "contexts: [{name: team, context: {cluster: c, user: u, namespace: team-a}}, "))
    where = [f"--kubeconfig={config}", "--context=team"]
    env = {"KUBECONFIG": "/nowhere"}
    result = kube.dtrain("submit", "--name=ctx", BUSYBOX, *where, "--", "true", env=env)
    assert f"--context='team' --kubeconfig={config}" in result.err
    assert kube.dtrain("get", "ctx", "-o", "json", *where, env=env).json()["namespace"] == "team-a"
    kube.dtrain("get", "ctx", "-n", "default", *where, env=env, expect=EXIT_NOT_FOUND)
    result = kube.dtrain("list", f"--kubeconfig={config}", "--context=other", expect=EXIT_USAGE)
    assert "there are: team, x" in result.err
    names = kube.dtrain("__complete", "fish", "list", "--context=", env={"KUBECONFIG": str(config)})
    assert "team" in names.out


@pytest.mark.api
@pytest.mark.parametrize("user, words, code", [
    ("token: expired", "log in again", EXIT_ENGINE),
    ("exec: {apiVersion: client.authentication.k8s.io/v1, command: /no/plugin}",
     "credential plug-in /no/plugin cannot be run", EXIT_ENGINE),
    ("client-certificate: [a]", "two:4: client-certificate must be a string", EXIT_USAGE),
    ("token: [", "two:4: not YAML", EXIT_USAGE),
])
def test_bad_credentials_are_named_in_one_line(kube, cluster, user, words, code):
    text = open(cluster.kubeconfig).read()
    start = text.index("users: ")
    end = text.index("\n", start)
    config = kube.folder / "two"
    config.write_text(f"{text[:start]}users: [{{name: u, user: {{{user}}}}}]{text[end:]}")
    result = kube.dtrain("list", env={"KUBECONFIG": os.fspath(config)}, expect=code)
    assert words in result.err and result.err.count("\n") == 1


def test_many_jobs_are_waited_for_by_one_client(kube, cluster):
    text = open(cluster.kubeconfig).read()
    start = text.index("users: ")
    end = text.index("\n", start)
    pem = {key: pathlib.Path(path).read_text()
           for key, path in re.findall(r"client-(\w+): ([^,}]+)", text[start:end])}
    answer = kube.folder / "credential"
    answer.write_text(json.dumps({
        "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
        "status": {"clientCertificateData": pem["certificate"], "clientKeyData": pem["key"]}}))
    plugin = kube.script("plugin", f"echo asked >>{kube.folder}/asked; exec cat {answer}")
    config = kube.folder / "by-plugin"
    config.write_text(f"{text[:start]}users: [{{name: u, user: {{exec: {{apiVersion: "
                      f"client.authentication.k8s.io/v1, command: {plugin}}}}}}}]{text[end:]}")
    names = [f"many-{number}" for number in range(4)]
    for name in names:
        kube.submit(name, "true", flags=[BUSYBOX])
    told = kube.dtrain("wait", *names, f"--kubeconfig={config}").out.splitlines()
    assert sorted(line.split()[0] for line in told) == [f"job/{name}" for name in names]
    assert (kube.folder / "asked").read_text().split() == ["asked"]


@pytest.mark.skipif(not FASHION.is_dir(), reason="needs Debian's dataset-fashion-mnist")
def test_training_goes_on_elsewhere_from_its_checkpoint_when_a_node_lost_its_power(
        kube, cluster, trainer_image, tmp_path):
    for folder in tmp_path, tmp_path.parent, tmp_path.parent.parent:
        folder.chmod(0o755)
    tmp_path.chmod(0o777)
    kube.submit("cut", "--data=/data", "--epochs=100000", "--log-every=50", "--resume",
                "--checkpoint-dir=/kept", "--checkpoint-every=50",
                flags=[TRAINER, "--workers=2", "--max-restarts=20", f"--data-dir={tmp_path}:/kept"])
    lost = kube.running("cut", 60)["instances"][0]["node"]

    def saved():
        return max((int(path.stem.removeprefix("step-"))
                    for path in tmp_path.rglob("step-*.safetensors")), default=0)
    before = until(saved, "it has a checkpoint", 60)
    cluster.run("cut-node", lost.removeprefix("node"))
    try:
        # The cluster itself notices after 20 s: here, by its controller manager's flags. This is
        # said until the Pod is gone, 30 s later; `get -w` does not look at nodes.
        silent = until(lambda: re.search(rf"node {lost} has not answered for (\d+) s; its Pods restart "
                                         "elsewhere 30 s after",
                                         kube.get("cut")["reason"]), "it names the silent node")
        assert int(silent.group(1)) >= 12

        def runs_elsewhere():
            job = kube.get("cut")
            assert job["status"] != "FAILED", job
            return all(i["status"] == "Running" and i["node"] != lost for i in job["instances"])
        # 20 s until the cluster notices, 30 s for the node to come back, a moment to start; the
        # rank that is left waits for its peer, or ends and is made anew.
        until(runs_elsewhere, "both run on the other node", 180)

        def resumed():
            return re.search(r"resumed from /kept\S* at step (\d+)",
                             kube.dtrain("logs", "cut", "-i", "worker-0").out)
        step = int(until(resumed, "it says from where it goes on", 120).group(1))
        assert step >= before
        until(lambda: saved() > step, "it trains on from there", 120)
        assert kube.get("cut")["restarts"] >= 1
    finally:
        cluster.run("start-node", lost.removeprefix("node"))
        cluster.kubectl("wait", "--for=condition=Ready", f"node/{lost}", "--timeout=60s")
