"""Jobs in queues, by Kueue's own controller."""
import json
import pathlib

import pytest

from engines.kubernetes.fixtures import BUSYBOX, TRAINER, until
from harness import EXIT_ENGINE, EXIT_ERROR, EXIT_USAGE

DOCS = pathlib.Path(__file__).parents[3] / "backends/kubernetes/README.md"
QUOTA = 2  # GPUs


def queue_objects(name, **preemption):
    """A queue of its own quota, of two names."""
    resources = {"cpu": "1000", "memory": "1000Ti", "nvidia.com/gpu": QUOTA}
    kueue = {"apiVersion": "kueue.x-k8s.io/v1beta1"}
    return [
        {**kueue, "kind": "ResourceFlavor", "metadata": {"name": "h200"}},
        {**kueue, "kind": "ClusterQueue", "metadata": {"name": name}, "spec": {
            "namespaceSelector": {}, "preemption": preemption, "resourceGroups": [{
                "coveredResources": list(resources), "flavors": [{"name": "h200", "resources": [
                    {"name": key, "nominalQuota": value} for key, value in resources.items()]}]}]}},
        *({**kueue, "kind": "LocalQueue", "metadata": {"name": local, "namespace": "default"},
           "spec": {"clusterQueue": name}} for local in (name, f"{name}-2"))]


def applied(cluster, objects):
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(
        {"apiVersion": "v1", "kind": "List", "items": objects}))


@pytest.fixture(scope="module")
def controllers(cluster):
    priorities = [{"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
                   "metadata": {"name": name}, "value": value}
                  for name, value in (("dtrain-low", -10), ("dtrain-high", 10))]
    try:
        cluster.run("start-jobset")
        cluster.run("start-trainjob")
        cluster.run("start-kueue")
        applied(cluster, [*priorities, *queue_objects("team"),
                          *queue_objects("urgent", withinClusterQueue="LowerPriority")])
        yield
    finally:
        cluster.run("stop-kueue")
        cluster.run("stop-trainjob")
        cluster.run("stop-jobset")
        cluster.kubectl("delete", "priorityclass", "dtrain-low", "dtrain-high",
                        "--ignore-not-found")


@pytest.fixture
def queues(controllers, kube, cluster):
    yield kube
    for job in kube.dtrain("list", "-o", "json").json():  # of this test
        kube.dtrain("delete", job["name"], "--ignore-not-found")
    # The garbage collector looks every 30 s for kinds that it does not know yet.
    until(lambda: not workloads(cluster), "no Workload is left", 120)


def workloads(cluster):
    return json.loads(cluster.kubectl("get", "workloads", "-o", "json"))["items"]


def submitted(queues, name, *flags, queue="team", gpus=QUOTA, command=("sleep", "600")):
    queues.submit(name, *command, flags=[BUSYBOX, f"--queue={queue}", f"--gpus={gpus}", *flags])


def waiting_for(queues, name, words):
    """The job's reason, once it has these words."""
    return until(lambda: words in queues.get(name)["reason"] and queues.get(name)["reason"],
                 f"{name} says {words}")


def test_a_job_within_the_quota_runs_to_its_end(queues):
    submitted(queues, "within", "--workers=2", gpus=1, command=["echo", "ran"])
    queues.wait_for_end("within", 0)
    assert queues.lines("within", "-i", "worker-1") == ["ran"]


def test_a_job_beyond_the_quota_says_of_what_and_in_which_position_and_runs_in_its_turn(queues):
    submitted(queues, "first")
    queues.running("first", 60)
    submitted(queues, "second")
    submitted(queues, "third", "--priority=dtrain-low", queue="team-2")
    waiting_for(queues, "second", "position 1: couldn't assign")
    waiting_for(queues, "third", "couldn't assign")
    job = queues.get("second")
    assert job["status"] == "QUEUING"
    assert job["reason"] == (
        "waiting for its turn in the queue team, position 1: couldn't assign flavors to pod set "
        "main: insufficient unused quota for nvidia.com/gpu in flavor h200, 2 more needed")
    assert "queue team-2, position 1 (2 among the queues of its quota): " in (
        queues.get("third")["reason"])
    assert job["reason"] in queues.dtrain("explain", "second").out
    until(lambda: {row["name"]: row["status"]
                   for row in queues.dtrain("list", "-o", "json").json()} == {
        "first": "RUNNING", "second": "QUEUING", "third": "QUEUING"}, "list says the same")
    queues.dtrain("delete", "first")
    queues.running("second", 60)
    waiting_for(queues, "third", "position 1:")


def test_who_follows_a_queued_job_is_told_why_it_waits(queues):
    submitted(queues, "ahead")
    queues.running("ahead", 60)
    submitted(queues, "told")
    submitted(queues, "never", gpus=QUOTA + 1)
    for name, words in (("told", "insufficient unused quota for nvidia.com/gpu"),
                        ("never", "insufficient quota for nvidia.com/gpu")):
        result = queues.dtrain("wait", name, "--timeout=3s", expect=EXIT_ERROR, seconds=60)
        assert "waiting for its turn in the queue team" in result.err
        assert words in result.err


def test_a_higher_priority_goes_first(queues):
    submitted(queues, "now")
    queues.running("now", 60)
    submitted(queues, "low", "--priority=dtrain-low")
    waiting_for(queues, "low", "position 1:")
    submitted(queues, "high", "--priority=dtrain-high")
    waiting_for(queues, "high", "position 1:")
    waiting_for(queues, "low", "position 2:")
    queues.dtrain("delete", "now")
    queues.running("high", 60)
    assert queues.get("low")["status"] == "QUEUING"


def test_a_higher_priority_preempts_where_the_queue_says_so(queues):
    submitted(queues, "victim", "--priority=dtrain-low", queue="urgent")
    queues.running("victim", 60)
    submitted(queues, "taker", "--priority=dtrain-high", queue="urgent",
              command=["sleep", "5"])
    queues.running("taker", 60)
    waiting_for(queues, "victim", "waiting for its turn in the queue urgent, position 1")
    queues.wait_for_end("taker", 0)
    queues.running("victim", 60)


@pytest.mark.parametrize("name, flags", [
    ("job", []), ("set", ["--api=jobset"]), ("trainjob", ["--api=trainjob"])])
def test_a_job_in_a_queue_is_suspended_and_resumed(queues, cluster, name, flags):
    submitted(queues, name, *flags)
    queues.running(name, 60)
    queues.dtrain("suspend", name)
    until(lambda: queues.get(name)["status"] == "SUSPENDED", "it has stopped")
    until(lambda: not cluster.kubectl("get", "pod", "-o", "name", "-l", f"dtrain/job={name}"),
          "its Pods are gone", 60)
    assert queues.get(name)["reason"] == "suspended"
    submitted(queues, f"{name}-2")  # Which gets the quota.
    queues.running(f"{name}-2", 60)
    queues.dtrain("resume", name)
    waiting_for(queues, name, "insufficient unused quota for nvidia.com/gpu")
    queues.dtrain("delete", f"{name}-2")
    queues.running(name, 60)


def test_a_job_that_is_suspended_while_it_waits_is_not_run_in_its_turn(queues):
    submitted(queues, "before")
    submitted(queues, "held")
    queues.dtrain("suspend", "held")
    queues.running("before", 60)
    waiting_for(queues, "held", "suspended")
    queues.dtrain("delete", "before")
    submitted(queues, "after", command=["true"])
    queues.wait_for_end("after", 0)
    assert (queues.get("held")["status"], queues.get("held")["reason"]) == ("SUSPENDED", "suspended")


@pytest.mark.parametrize("api", ["jobset", "trainjob"])
def test_one_of_another_api_waits_and_runs_in_a_queue(queues, api):
    submitted(queues, "one", f"--api={api}", "--workers=2", gpus=1)
    queues.running("one", 60)
    submitted(queues, "other", f"--api={api}", command=["echo", "ran"])
    reason = waiting_for(queues, "other", "insufficient unused quota")
    assert reason.startswith("waiting for its turn in the queue team, position 1: ")
    assert "nvidia.com/gpu" in reason
    queues.dtrain("delete", "one")
    queues.wait_for_end("other", 0)


def test_a_launcher_and_its_workers_run_in_a_queue(queues, trainer_image):
    queues.dtrain("submit", "mpijob", "--name=launched", TRAINER, "--queue=team", "--workers=2",
                  "--", "mpirun", "-np", "2", "sh", "-c", "echo $OMPI_COMM_WORLD_RANK")
    queues.wait_for_end("launched", 0)
    assert sorted(queues.lines("launched", "-i", "launcher-0")) == ["0", "1"]


def test_a_queue_that_is_not_there_is_refused_and_one_that_goes_is_the_reason(queues, cluster):
    result = queues.submit("nowhere", "true", flags=[BUSYBOX, "--queue=mine"], expect=EXIT_USAGE)
    assert "--queue=mine: namespace default has no LocalQueue of that name" in result.err
    assert result.err.count("\n") == 1
    applied(cluster, [{"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "LocalQueue",
                       "metadata": {"name": "brief", "namespace": "default"},
                       "spec": {"clusterQueue": "team", "stopPolicy": "Hold"}}])
    submitted(queues, "brief", queue="brief")
    waiting_for(queues, "brief", "LocalQueue brief is inactive")
    cluster.kubectl("delete", "localqueue", "brief")
    submitted_reason = waiting_for(queues, "brief", "LocalQueue brief")
    assert submitted_reason.startswith("waiting for its turn in the queue brief: ")


def test_the_roles_in_the_docs_suffice(queues, cluster):
    smallest, more = (text.split("```")[0] for text in DOCS.read_text().split("```yaml\n")[1:])
    config = queues.folder / "minimal.kubeconfig"
    config.write_text(pathlib.Path(cluster.kubeconfig).read_text().replace(
        "users: [{name: u, user: {", "users: [{name: u, user: {as: minimal, "))
    env = {"KUBECONFIG": str(config)}

    def reason():
        return queues.dtrain("get", "least", "-o", "json", env=env).json()["reason"]

    def bind(role, name):
        cluster.kubectl("apply", "-f", "-", stdin=role)
        cluster.kubectl("create", "rolebinding", name, f"--role={name}", "--user=minimal")

    try:
        bind(smallest, "dtrain")
        submitted(queues, "most")
        queues.running("most", 60)
        queues.dtrain("submit", "--name=least", BUSYBOX, "--queue=team", "--gpus=2", "--", "true",
                      env=env)
        waiting_for(queues, "least", "position 1: couldn't assign")
        assert reason() == "waiting for its turn in the queue team"
        result = queues.dtrain("suspend", "least", env=env, expect=EXIT_ENGINE)
        assert "workloads.kueue.x-k8s.io is forbidden" in result.err
        bind(more, "dtrain-queue")
        until(lambda: "position 1: couldn't assign" in reason(), "now all is told")
        queues.dtrain("suspend", "least", env=env)
        until(lambda: reason() == "suspended", "it is suspended")
        queues.dtrain("resume", "least", env=env)
        queues.dtrain("delete", "most")
        queues.dtrain("wait", "least", env=env)
    finally:
        cluster.kubectl("delete", "role,rolebinding", "dtrain", "dtrain-queue", "--ignore-not-found")
