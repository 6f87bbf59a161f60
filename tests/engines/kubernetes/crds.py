"""APIs that a cluster may have, as their projects define the fields that dtrain writes: Volcano
1.12's PodGroup and Queue, scheduler-plugins 0.31's PodGroup, Kueue 0.10's LocalQueue, and the PodMetrics of
Kubernetes' metrics API."""
import contextlib
import json

from engines.kubernetes.fixtures import until

TEXT, NUMBER = {"type": "string"}, {"type": "integer", "format": "int32", "minimum": 1}
AMOUNTS = {"type": "object", "additionalProperties": {"x-kubernetes-int-or-string": True}}


def crd(group, version, kind, plural, spec):
    return {
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}",
                     # What the API server asks of groups below k8s.io.
                     "annotations": {"api-approved.kubernetes.io": "unapproved, a test"}},
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "versions": [{
                "name": version, "served": True, "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "properties": spec},
                    "status": {"type": "object",
                               "x-kubernetes-preserve-unknown-fields": True}}}}}]}}


VOLCANO = crd("scheduling.volcano.sh", "v1beta1", "PodGroup", "podgroups", {
    "minMember": NUMBER, "minTaskMember": {"type": "object", "additionalProperties": NUMBER},
    "queue": {**TEXT, "default": "default"}, "priorityClassName": TEXT, "minResources": AMOUNTS})
VOLCANO_QUEUE = crd("scheduling.volcano.sh", "v1beta1", "Queue", "queues", {"weight": NUMBER})
VOLCANO_QUEUE["spec"]["scope"] = "Cluster"
COSCHEDULING = crd("scheduling.x-k8s.io", "v1alpha1", "PodGroup", "podgroups", {
    "minMember": NUMBER, "minResources": AMOUNTS, "scheduleTimeoutSeconds": NUMBER})
KUEUE = crd("kueue.x-k8s.io", "v1beta1", "LocalQueue", "localqueues", {
    "clusterQueue": TEXT, "stopPolicy": TEXT})
# metrics-server serves these; here they are stored.
METRICS = crd("metrics.k8s.io", "v1beta1", "PodMetrics", "pods", {})
METRICS["spec"]["versions"][0]["schema"] = {
    "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}


@contextlib.contextmanager
def installed(cluster, definition):
    name = definition["metadata"]["name"]
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(definition))
    try:
        group = definition["spec"]["group"]
        until(lambda: f'"{group}"' in cluster.kubectl("get", "--raw", "/apis"),
              f"the API has {group}")
        until(lambda: "True" in cluster.kubectl(
            "get", "crd", name, "-o",
            "jsonpath={.status.conditions[?(@.type=='Established')].status}"), "it is served")
        yield
    finally:
        cluster.kubectl("delete", "crd", name, "--timeout=60s")
