"""Buckets of a real S3 store, which checks every signature: copied on this machine, and by the init
containers of Pods."""
import json
import os
import socket
import subprocess

import pytest

from engines.kubernetes.fixtures import BUSYBOX, HERE, TRAINER, everything_of, until
from harness import EXIT_JOB_FAILED, EXIT_USAGE

HOST = "172.30.0.1"  # The cluster's bridge
KEYS = {"AWS_ACCESS_KEY_ID": "anna", "AWS_SECRET_ACCESS_KEY": "opensesame"}


@pytest.fixture
def store(kube, cluster, tmp_path):
    """The address of a store with 2,503 objects in pics/train."""
    cluster.run("build-s3")
    program = subprocess.run([HERE / "cluster", "binary", "s3"], check=True, capture_output=True,
                             text=True).stdout.strip()
    folder = tmp_path / "store" / "pics"
    (folder / "train" / "deep").mkdir(parents=True)
    (folder / "other").mkdir()
    (folder / "other" / "x").write_text("x")
    for number in range(2500):
        (folder / "train" / "deep" / f"{number}").write_text(f"{number}\n")
    (folder / "train" / "a b+ü&=%$").write_text("odd\n")
    (folder / "train" / "big").write_bytes(os.urandom(9_000_000))
    (folder / "train" / "empty").write_text("")
    # Held until the store has it: bound, with no listener, and it sets SO_REUSEADDR as Go does.
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind((HOST, 0))
    port = held.getsockname()[1]
    log = open(tmp_path / "store.log", "w")
    process = subprocess.Popen([program, "--port", f"{HOST}:{port}", "posix", "--nometa",
                                folder.parent], stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                               env={"ROOT_ACCESS_KEY_ID": KEYS["AWS_ACCESS_KEY_ID"],
                                    "ROOT_SECRET_ACCESS_KEY": KEYS["AWS_SECRET_ACCESS_KEY"]})
    try:
        def listens():
            with socket.socket() as probe:
                return probe.connect_ex((HOST, port)) == 0
        until(listens, "the store listens")
        kube.env["AWS_ENDPOINT_URL"] = f"http://{HOST}:{port}"
        yield folder / "train"
    finally:
        process.kill()
        process.wait()
        held.close()
        log.close()


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*")
            if path.is_file()}


def test_a_real_store_takes_our_signatures_and_gives_every_object(kube, store):
    copy = ["data", "copy", "s3://pics/train", "out"]
    assert "new: 2503" in kube.dtrain(*copy, env=KEYS).err
    assert contents(kube.folder / "out") == contents(store)
    assert "new: 0," in kube.dtrain(*copy, env=KEYS).err
    wrong = {**KEYS, "AWS_SECRET_ACCESS_KEY": "other"}
    assert "SignatureDoesNotMatch" in kube.dtrain(*copy, env=wrong, expect=EXIT_USAGE).err
    assert "AccessDenied" in kube.dtrain(*copy, expect=EXIT_USAGE).err
    none = kube.dtrain("data", "copy", "s3://nobody/x", "none", env=KEYS, expect=EXIT_USAGE)
    assert "NoSuchBucket" in none.err


def test_every_pod_has_the_bucket_at_its_path_and_its_keys_are_nowhere(
        kube, cluster, store, trainer_image):
    kube.submit("bucket", "sh", "-c", "cd /data && ls deep | wc -l && cat a*; md5sum <big; "
                "echo x >new && exit 9; env | grep -c AWS_ || true", env=KEYS,
                flags=[TRAINER, "--workers=2", "--data=s3://pics/train:/data:ro"])
    kube.wait_for_end("bucket", 0)
    digest = subprocess.run(["md5sum"], stdin=open(store / "big"), capture_output=True,
                            text=True).stdout.strip()
    for rank in "worker-0", "worker-1":
        lines = [line for line in kube.lines("bucket", "-i", rank) if "Read-only" not in line]
        assert lines == [*lines[:-4], "2500", "odd", digest, "0"]
    assert "opensesame" not in everything_of(cluster, "bucket", "job", "pod", "configmap")
    secret = json.loads(cluster.kubectl("get", "secret", "bucket", "-o", "json"))
    assert {"bucket-0-id", "bucket-0-secret"} <= set(secret["data"])


def test_keys_may_be_a_secrets_of_the_cluster(kube, cluster, store, trainer_image):
    cluster.kubectl("create", "secret", "generic", "bucket-keys",
                    *(f"--from-literal={key}={value}" for key, value in KEYS.items()))
    try:
        kube.submit("clusterkeys", "cat", "/data/deep/7",
                    flags=[TRAINER, "--data=s3://pics/train:/data:ro", "--secret=bucket-keys"])
        kube.wait_for_end("clusterkeys", 0)
        assert kube.lines("clusterkeys", "-i", "worker-0")[-1] == "7"
    finally:
        cluster.kubectl("delete", "secret", "bucket-keys")


def test_a_bucket_that_refuses_us_is_said_before_anything_is_made(kube, cluster, store):
    flags = [BUSYBOX, "--data=s3://pics/none:/data:ro"]
    for dry in [], ["--dry-run=server"]:
        result = kube.dtrain("submit", "--name=nobucket", *flags, *dry, "--", "true", env=KEYS,
                             expect=EXIT_USAGE)
        assert "s3://pics/none: no objects found" in result.err
    assert "nobucket" not in cluster.kubectl("get", "jobs,services,configmaps,secrets")


def test_an_image_without_dtrain_is_the_cause(kube, store, trainer_image):
    flags = ["--data=s3://pics/train:/data:ro", BUSYBOX]
    kube.submit("nodtrain", "true", flags=flags, env=KEYS)
    kube.dtrain("wait", "nodtrain", expect=EXIT_JOB_FAILED)
    assert "--sync-image" in kube.get("nodtrain")["cause"]["lastStderr"][-1]
    kube.submit("syncimage", "cat", "/data/deep/7", env=KEYS,
                flags=[*flags, "--sync-image=" + TRAINER.split("=")[1]])
    kube.wait_for_end("syncimage", 0)
