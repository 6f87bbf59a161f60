"""Jobs that start whole or wait in a queue, by the APIs that a cluster has for it."""
import json

import pytest

from engines.kubernetes.crds import COSCHEDULING, KUEUE, VOLCANO, VOLCANO_QUEUE, installed
from engines.kubernetes.fixtures import BUSYBOX, until
from harness import EXIT_USAGE

pytestmark = pytest.mark.api


def group_of(cluster, name, api):
    return json.loads(cluster.kubectl("get", f"podgroups.{api}", name, "-o", "json"))


@pytest.mark.parametrize("flags, words", [
    (["--gang"], "neither Volcano (scheduling.volcano.sh) nor coscheduling (scheduling.x-k8s.io)"),
    (["--scheduler=volcano", "--queue=q"], "no Volcano (scheduling.volcano.sh/v1beta1)"),
    (["--gang", "--scheduler=mine"], "no coscheduling PodGroups (scheduling.x-k8s.io/v1alpha1)"),
    (["--queue=q"], "--queue=q: the cluster has no Kueue (kueue.x-k8s.io)"),
])
@pytest.mark.parametrize("dry_run", [[], ["--dry-run=server"]])
def test_what_the_cluster_lacks_is_named_and_nothing_is_made(kube, cluster, flags, words, dry_run):
    result = kube.submit("lacks", "true", flags=[BUSYBOX, *flags, *dry_run], expect=EXIT_USAGE)
    assert words in result.err and result.err.count("\n") == 1
    assert not cluster.kubectl("get", "job,configmap,secret", "-o", "name", "-l", "dtrain/job=lacks")


def test_gang_finds_volcano_and_makes_its_group(kube, cluster):
    with installed(cluster, VOLCANO):
        result = kube.submit("flock", "true", flags=[BUSYBOX, "--gang", "--workers=3"])
        assert "Volcano" in result.err
        group = group_of(cluster, "flock", "scheduling.volcano.sh")
        assert group["spec"] == {"minMember": 3, "queue": "default"}
        [owner] = group["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"]) == ("Job", "flock-worker")
        job = json.loads(cluster.kubectl("get", "job", "flock-worker", "-o", "json"))["spec"]
        assert job["template"]["spec"]["schedulerName"] == "volcano"
        assert job["template"]["metadata"]["annotations"]["scheduling.k8s.io/group-name"] == "flock"
        assert job["suspend"] is False
        kube.dtrain("scale", "flock", "--workers=5")
        assert group_of(cluster, "flock", "scheduling.volcano.sh")["spec"]["minMember"] == 5


def test_a_queue_of_volcano_is_its_groups_and_kueue_is_not_asked(kube, cluster):
    with installed(cluster, VOLCANO):
        kube.submit("queued", "true", flags=[BUSYBOX, "--workers=2", "--scheduler=volcano",
                                             "--queue=research", "--priority=system-node-critical"])
        assert group_of(cluster, "queued", "scheduling.volcano.sh")["spec"] == {
            "minMember": 1, "queue": "research", "priorityClassName": "system-node-critical"}
        job = cluster.kubectl("get", "job", "queued-worker", "-o", "json")
        assert "kueue" not in job and json.loads(job)["spec"]["suspend"] is False


def test_a_queue_that_volcano_does_not_have_is_refused(kube, cluster):
    flags = [BUSYBOX, "--scheduler=volcano", "--queue=nobody"]
    with installed(cluster, VOLCANO), installed(cluster, VOLCANO_QUEUE):
        result = kube.submit("noqueue", "true", flags=flags, expect=EXIT_USAGE)
        assert "--queue=nobody: Volcano has no Queue" in result.err
        cluster.kubectl("apply", "-f", "-", stdin=json.dumps(
            {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue",
             "metadata": {"name": "nobody"}, "spec": {"weight": 1}}))
        kube.submit("noqueue", "true", flags=flags)
        until(lambda: "scheduler volcano has not looked at it" in kube.get("noqueue")["reason"],
              "its wait has a reason")


def test_a_gang_of_coscheduling_needs_its_schedulers_name(kube, cluster):
    with installed(cluster, COSCHEDULING):
        result = kube.submit("swarm", "true", flags=[BUSYBOX, "--gang"], expect=EXIT_USAGE)
        assert "--scheduler=scheduler-plugins-scheduler" in result.err
        flags = [BUSYBOX, "--gang", "--scheduler=scheduler-plugins-scheduler", "--workers=2"]
        kube.dtrain("submit", "mpijob", "--name=swarm", *flags, "--", "true")
        # The launcher is one of those that start together.
        assert group_of(cluster, "swarm", "scheduling.x-k8s.io")["spec"] == {"minMember": 3}
        for name in "swarm-worker", "swarm-launcher":
            pod = json.loads(cluster.kubectl("get", "job", name, "-o", "json"))["spec"]["template"]
            assert pod["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] == "swarm"
            assert pod["spec"]["schedulerName"] == "scheduler-plugins-scheduler"


def test_a_queue_of_kueue_must_be_there_and_then_holds_the_job(kube, cluster):
    with installed(cluster, KUEUE):
        result = kube.submit("turn", "true", flags=[BUSYBOX, "--queue=team"], expect=EXIT_USAGE)
        assert "--queue=team: namespace default has no LocalQueue" in result.err
        cluster.kubectl("apply", "-f", "-", stdin=json.dumps({
            "apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "LocalQueue",
            "metadata": {"name": "team", "namespace": "default"}, "spec": {"clusterQueue": "all"}}))
        kube.submit("turn", "true", flags=[BUSYBOX, "--queue=team"])
        job = json.loads(cluster.kubectl("get", "job", "turn-worker", "-o", "json"))
        assert job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team"
        assert job["spec"]["suspend"] is True
        until(lambda: kube.get("turn")["reason"] == "waiting for its turn in the queue team",
              "the reason is the queue")


def test_a_volcanojobs_tasks_are_one_group_of_volcanos(kube, cluster):
    with installed(cluster, VOLCANO):
        kube.dtrain("submit", "volcanojob", "--name=tasks", "--task-replicas=2", "--min-available=3",
                    "--task-images=localhost/busybox:1,localhost/other:1")
        group = group_of(cluster, "tasks", "scheduling.volcano.sh")
        assert group["spec"] == {"minMember": 3, "queue": "default"}
        jobs = json.loads(cluster.kubectl("get", "jobs", "-o", "json", "-l", "dtrain/job=tasks"))
        containers = [job["spec"]["template"]["spec"]["containers"][0] for job in jobs["items"]]
        assert {each["image"] for each in containers} == {"localhost/busybox:1", "localhost/other:1"}
        assert not any("command" in each for each in containers)
        assert [each["name"] for each in kube.get("tasks")["instances"]] == [
            "task-0-0", "task-0-1", "task-1-0", "task-1-1"]
