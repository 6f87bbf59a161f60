"""Where a job's Pods run, and what is mounted into them."""
import json

import pytest

from engines.kubernetes.fixtures import BUSYBOX, until
from harness import EXIT_USAGE

SLEEP = ("sleep", "600")


def nodes_of(kube, name):
    return sorted(i["node"] for i in kube.get(name)["instances"] if i["status"] == "Running")


@pytest.fixture
def slots(cluster):
    """A device that node1 has once and node2 four times."""
    def offer(value):
        for node, count in ("node1", 1), ("node2", 4):
            cluster.kubectl("patch", "node", node, "--subresource=status", "--type=merge", "-p",
                            json.dumps({"status": {"capacity": {"example.com/slot": value and
                                                                str(count)}}}))
    offer(True)
    until(lambda: cluster.kubectl("get", "nodes", "-o",
                                  "jsonpath={.items[*].status.allocatable.example\\.com/slot}") ==
          "1 4", "both nodes offer the device", 60)
    yield "--device=example.com/slot=1"
    offer(None)


def test_a_required_spread_makes_a_worker_wait_rather_than_be_uneven(kube, slots):
    flags = [BUSYBOX, "--workers=4", slots]
    kube.submit("even", *SLEEP,
                flags=[*flags, "--topology-spread=kubernetes.io/hostname:required"])
    until(lambda: "topology spread constraints" in kube.get("even")["reason"],
          "the fourth waits, and the reason is said")
    until(lambda: nodes_of(kube, "even") == ["node1", "node2", "node2"], "the others run")
    kube.dtrain("delete", "even")
    kube.submit("rather", *SLEEP, flags=[*flags, "--topology-spread=kubernetes.io/hostname"])
    kube.running("rather", 60)


def test_binpack_keeps_the_workers_on_one_node(kube):
    kube.submit("apart", *SLEEP, flags=[BUSYBOX, "--workers=4"])
    kube.running("apart", 60)
    assert set(nodes_of(kube, "apart")) == {"node1", "node2"}
    kube.submit("packed", *SLEEP, flags=[BUSYBOX, "--workers=4", "--binpack"])
    kube.running("packed", 60)
    assert len(set(nodes_of(kube, "packed"))) == 1


@pytest.mark.api
@pytest.mark.parametrize("flags, words", [
    (["--binpack", "--topology-spread=kubernetes.io/hostname"], "give one"),
    (["--topology-spread=:required"], "--topology-spread=:required: must be KEY"),
    (["--data=csi://?a=b:/x"], "csi://DRIVER"),
    (["--data=csi://d?a=%2:/x"], "csi://DRIVER"),
])
def test_a_placement_or_volume_that_cannot_be_read_is_refused(kube, flags, words):
    result = kube.submit("bad", "true", flags=[BUSYBOX, *flags], expect=EXIT_USAGE)
    assert words in result.err and result.err.count("\n") == 1


@pytest.mark.api
def test_shares_and_csi_volumes_are_what_the_api_takes(kube):
    kube.dtrain("data", "add", "vault", "--csi=secrets-store.csi.k8s.io?secretProviderClass=keys",
                "--read-only")
    plan = kube.dtrain("submit", "--name=mounts", BUSYBOX, "--dry-run=server",
                       "--data=nfs://nas.example/exports/train:/train:ro",
                       "--data=nas://nas.example/out:/out", "--data=vault:/keys",
                       "--data=csi://disk.example.com?fsType=xfs&nodePublishSecretRef=login"
                       "&server=nas:/vol&odd=a%26b:/disk", "--", "true").out
    spec = json.loads(plan[plan.index("{"):plan.index("\n}\n") + 2])["spec"]["template"]["spec"]
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    mounts = {mount["mountPath"]: mount for mount in spec["containers"][0]["volumeMounts"]}
    assert volumes[mounts["/train"]["name"]]["nfs"] == {
        "server": "nas.example", "path": "/exports/train", "readOnly": True}
    assert mounts["/train"]["readOnly"] is True
    assert volumes[mounts["/out"]["name"]]["nfs"] == {"server": "nas.example", "path": "/out"}
    assert volumes[mounts["/keys"]["name"]]["csi"] == {
        "driver": "secrets-store.csi.k8s.io", "readOnly": True,
        "volumeAttributes": {"secretProviderClass": "keys"}}
    assert volumes[mounts["/disk"]["name"]]["csi"] == {
        "driver": "disk.example.com", "readOnly": False, "fsType": "xfs",
        "nodePublishSecretRef": {"name": "login"},
        "volumeAttributes": {"server": "nas:/vol", "odd": "a&b"}}


def test_a_csi_driver_that_the_nodes_lack_is_the_reason(kube):
    kube.submit("nodriver", "true", flags=[BUSYBOX, "--data=csi://none.example.com:/x"])
    until(lambda: "none.example.com" in kube.get("nodriver")["reason"], "the driver is named", 60)
