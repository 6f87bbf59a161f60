"""Code from a folder of this machine: packed, kept in the cluster, unpacked in each Pod."""
import hashlib
import json
import os
import re

import pytest

from engines.kubernetes.fixtures import BUSYBOX, TRAINER, until
from harness import EXIT_USAGE

SYNC = [BUSYBOX, "--sync-mode=local", "--sync-source=code"]


@pytest.fixture
def code(kube):
    folder = kube.folder / "code"
    (folder / "deep").mkdir(parents=True)
    (folder / "run").write_text("#!/bin/sh\ncat deep/text\n")
    (folder / "run").chmod(0o755)
    (folder / "deep" / "text").write_text("uncommitted\n")
    (folder / "weights").write_bytes(os.urandom(3_000_000))
    (folder / "secret.env").write_text("not sent")
    (folder / ".dtrainignore").write_text("*.env\n")
    return folder


def parts(cluster):
    """The names of the owners of each part."""
    items = json.loads(cluster.kubectl("get", "configmaps", "-o", "json"))["items"]
    return {item["metadata"]["name"]: {owner["name"] for owner in item["metadata"]["ownerReferences"]}
            for item in items if item["metadata"]["name"].startswith("dtrain-code-")}


def of_job(cluster, job):
    return {name for name, owners in parts(cluster).items() if f"{job}-worker" in owners}


def test_a_folder_reaches_every_rank_as_it_is(kube, code):
    kube.submit("folder", "sh", "-c", "./run && pwd && ls && md5sum <weights",
                flags=[*SYNC, "--workers=2"])
    kube.wait_for_end("folder", 0)
    digest = hashlib.md5((code / "weights").read_bytes()).hexdigest()
    for rank in "worker-0", "worker-1":
        assert kube.lines("folder", "-i", rank) == ["uncommitted", "/code", "deep", "run", "weights",
                                                    f"{digest}  -"]


def test_what_did_not_change_is_not_sent_again_and_goes_with_its_last_job(kube, code, cluster):
    kube.submit("first", "true", flags=SYNC)
    (code / "deep" / "text").write_text("changed\n")
    again = kube.submit("second", "./run", flags=SYNC)
    packed, new = re.search(r"packed ([\d.]+) MB, of which new ([\d.]+) kB", again.err).groups()
    assert float(packed) >= 3 and float(new) <= 1000
    kube.wait_for_end("second", 0)
    assert kube.lines("second", "-i", "worker-0") == ["changed"]
    shared = of_job(cluster, "first") & of_job(cluster, "second")
    assert shared
    kube.dtrain("delete", "first")
    until(lambda: not of_job(cluster, "first"), "the first job's own parts are gone", 60)
    assert shared <= of_job(cluster, "second")
    kube.dtrain("delete", "second")
    until(lambda: not shared & set(parts(cluster)), "no part is left", 60)


def test_a_rank_that_starts_anew_long_after_submission_finds_the_code(kube, code):
    kube.submit("anew", "sh", "-c", '[ "$DTRAIN_RESTART_COUNT" = 1 ] || { rm -r deep; exit 1; }; ./run',
                flags=[*SYNC, "--max-restarts=1"])
    (code / "deep" / "text").write_text("of another job\n")
    kube.wait_for_end("anew", 0)
    assert kube.lines("anew", "-i", "worker-0")[-1] == "uncommitted"


def test_workers_of_a_launcher_have_the_code_too(kube, code, trainer_image):
    kube.dtrain("submit", "mpijob", "--name=launch", "--workers=2", TRAINER, *SYNC[1:], "--", "sh", "-c",
                "cat deep/text; pdsh -S -w $(cut -d' ' -f1 /etc/dtrain/hostfile | paste -sd,) 'cat /code/deep/text'")
    kube.wait_for_end("launch", 0)
    text = "\n".join(kube.lines("launch"))
    assert text.count("uncommitted") == 3, text


@pytest.mark.api
def test_a_folder_too_large_for_the_cluster_s_store_is_refused_and_nothing_is_made(kube, code, cluster):
    before = set(parts(cluster))
    (code / "data").write_bytes(os.urandom(40_000_000))
    result = kube.submit("large", "true", flags=SYNC, expect=EXIT_USAGE)
    assert "when packed" in result.err and ".dtrainignore" in result.err
    assert set(parts(cluster)) <= before  # Those of jobs that are gone go too, meanwhile.
    assert "large" not in cluster.kubectl("get", "jobs,configmaps,secrets")


@pytest.mark.api
def test_a_plan_says_that_the_folder_s_parts_are_named_at_submission(kube, code):
    plan = kube.dtrain("submit", "--name=plan", *SYNC, "--dry-run", "--", "true").out
    assert "tar -xzof -" in plan and "sources: []" in plan
    kube.dtrain("submit", "--name=plan", *SYNC, "--dry-run=server", "--", "true")
