"""Jobs on a cluster, beside kubectl on the same one. Brings up the tests' cluster, unless
DTRAIN_TEST_CLUSTER names the folder of one that is up."""
import contextlib
import json
import os
import statistics
import subprocess
import time

import yaml

from measure import HERE, Row, milliseconds, own_home, run

CLUSTER = HERE.parent / "engines" / "kubernetes" / "cluster"
IMAGE = "--image=localhost/busybox:1"
RUNS = 10
MANY_JOBS = 2000


@contextlib.contextmanager
def cluster():
    """The folder of a cluster that is up."""
    if kept := os.environ.get("DTRAIN_TEST_CLUSTER"):
        yield kept
        return
    folder = "/tmp/dtrain-k8s"
    env = dict(os.environ, DIR=folder)
    try:
        run([CLUSTER, "build"], env=env)
        run([CLUSTER, "up"], env=env)
        yield folder
    finally:
        run([CLUSTER, "down"], env=env)


def seconds(function):
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def curl_words(folder):
    """One request of what `get` asks first, on a connection of its own."""
    pki = f"{folder}/pki"
    server = run([f"{folder}/bin/kubectl", "config", "view", "-o",
                  "jsonpath={.clusters[0].cluster.server}"],
                 env=dict(os.environ, KUBECONFIG=f"{folder}/admin.kubeconfig"))
    return ["curl", "-sf", "-o", "/dev/null", "--cacert", f"{pki}/ca.crt", "--cert",
            f"{pki}/admin.crt", "--key", f"{pki}/admin.key",
            f"{server}/apis/batch/v1/namespaces/default/jobs?labelSelector=dtrain%2Fjob%3Done"]


def objects_of(dtrain, env, name):
    """What a job's plan holds, as kubectl takes it."""
    flags = ["submit", f"--name={name}", IMAGE, "--workers=3", "--dry-run=server", "--", "true"]
    text = run([dtrain, *flags], env=env)
    objects = []
    for item in yaml.safe_load_all(text):
        for key in ("uid", "creationTimestamp", "resourceVersion", "generation"):
            item["metadata"].pop(key, None)
        item.pop("status", None)
        for key in ("clusterIP", "clusterIPs"):
            if item["kind"] == "Service" and item["spec"].get(key) not in ("None", ["None"]):
                item["spec"].pop(key, None)
        if item["kind"] == "Job":
            item["spec"].pop("selector", None)
            labels = item["spec"]["template"]["metadata"]["labels"]
            for key in [key for key in labels if "controller-uid" in key or "job-name" in key]:
                del labels[key]
        objects.append(item)
    return {"apiVersion": "v1", "kind": "List", "items": objects}


def submit_beside_apply(bench, dtrain, kubectl, env, folder):
    """Medians in ms of a submit, and of an apply of the same objects under other names."""
    count = iter(range(10_000))

    def submit():
        name = f"bench-{next(count)}"
        words = [dtrain, "submit", "-q", f"--name={name}", IMAGE, "--workers=3", "--", "true"]
        return name, seconds(lambda: run(words, env=env))

    def apply():
        name = f"bench-{next(count)}"
        path = f"{folder}/{name}.json"
        with open(path, "w") as file:
            json.dump(objects_of(dtrain, env, name), file)
        words = [kubectl, "apply", "-f", path]
        return name, seconds(lambda: run(words, env=env))

    def median(function):
        times = []
        for _ in range(RUNS):
            name, elapsed = function()
            times.append(elapsed * 1000)
            run([kubectl, "delete", "job,service,configmap,secret", "-l", f"dtrain/job={name}",
                 "--ignore-not-found"], env=env)
        return statistics.median(times)

    times = bench.interleaved({"submit": lambda: median(submit), "apply": lambda: median(apply)})
    return min(times["submit"]), min(times["apply"])


def first_line_after_start(dtrain, env, name):
    """From when the container's program runs to when its first line is here, in ms. Both clocks
    are the machine's: time since its start."""
    words = [dtrain, "submit", f"--name={name}", IMAGE, "--wait", "--", "cat", "/proc/uptime"]
    with subprocess.Popen(words, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          text=True) as submit:
        for line in submit.stdout:
            words = line.split()
            if len(words) == 2 and words[0].replace(".", "").isdigit():
                now = time.clock_gettime(time.CLOCK_BOOTTIME)
                submit.stdout.read()
                return (now - float(words[0])) * 1000
    raise RuntimeError("the job's output did not come")


def many_jobs(name):
    """So many Jobs of ours, suspended: they have no Pods."""
    def one(number):
        job = f"{name}-{number:04}"
        return {"apiVersion": "batch/v1", "kind": "Job",
                "metadata": {"name": f"{job}-worker", "namespace": name, "labels": {
                    "app.kubernetes.io/managed-by": "dtrain", "dtrain/job": job}},
                "spec": {"suspend": True, "template": {"spec": {
                    "restartPolicy": "Never",
                    "containers": [{"name": "main", "image": "localhost/busybox:1"}]}}}}
    return {"apiVersion": "v1", "kind": "List", "items": [one(i) for i in range(MANY_JOBS)]}


def rows(bench):
    dtrain = bench.bin / "dtrain"
    with cluster() as folder, own_home() as home:
        kubectl = f"{folder}/bin/kubectl"
        env = dict(home, KUBECONFIG=f"{folder}/admin.kubeconfig", DTRAIN_BACKEND="kubernetes")
        run([dtrain, "submit", "--name=one", IMAGE, "--workers=3", "--", "sleep", "600"], env=env)
        commands = {"get": [dtrain, "get", "one"], "list": [dtrain, "list"],
                    "kubectl": [kubectl, "get", "jobs"], "curl": curl_words(folder)}
        times = bench.interleaved({name: lambda command=command: milliseconds(command, RUNS, env)
                                   for name, command in commands.items()})
        result = [Row(name, "ms", min(times[name]), "kubectl get jobs", min(times["kubectl"]),
                      target=4) for name in ("get", "list")]
        result.append(Row("get", "ms", min(times["get"]), "curl, one request, a fresh connection",
                          min(times["curl"]), target=1 / 1.5))
        ours, theirs = submit_beside_apply(bench, dtrain, kubectl, env, home["HOME"])
        result.append(Row("submit --workers=3", "ms", ours, "kubectl apply of the same", theirs,
                          target=1 / 1.5))
        run([dtrain, "delete", "one"], env=env)
        delays = sorted(first_line_after_start(dtrain, env, f"line-{i}") for i in range(5))
        result.append(Row("container's start to its first line here", "ms", delays[2], target=300))
        for i in range(5):
            run([dtrain, "delete", f"line-{i}"], env=env)

        run([kubectl, "create", "namespace", "many"], env=env)
        try:
            path = f"{home['HOME']}/many.json"
            with open(path, "w") as file:
                json.dump(many_jobs("many"), file)
            run([kubectl, "create", "-f", path], env=env)
            listed = run([dtrain, "list", "-n", "many", "-o", "name"], env=env).count("job/")
            if listed != MANY_JOBS:
                raise RuntimeError(f"list shows {listed} of {MANY_JOBS} jobs")
            result.append(Row(f"list of {MANY_JOBS:,} jobs", "ms",
                              milliseconds([dtrain, "list", "-n", "many"], 5, env), target=1000))
        finally:
            run([kubectl, "delete", "namespace", "many"], env=env)
    return result
