"""TensorBoard beside a job of the cluster, and the port of this machine that leads to it. A stand-in
of that name serves the files of its --logdir."""
import json
import signal
import socket
import threading
import urllib.request

import pytest

from engines.kubernetes.fixtures import BUSYBOX, until
from harness import EXIT_ENGINE, EXIT_USAGE

STAND_IN = """#!/bin/sh
for word; do case $word in --logdir=*) dir=${word#*=} ;; --port=*) port=${word#*=} ;; esac; done
exec httpd -f -p 0.0.0.0:$port -h "$dir"
"""


@pytest.fixture
def flags(tmp_path):
    """Mounts the stand-in, and a folder of logs, into every Pod."""
    for folder in tmp_path, tmp_path.parent, tmp_path.parent.parent:
        folder.chmod(0o755)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/tensorboard").write_text(STAND_IN)
    (tmp_path / "bin/tensorboard").chmod(0o755)
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs").chmod(0o777)
    return [BUSYBOX, "--tensorboard", "--logdir=/logs/run", f"--data-dir={tmp_path}/logs:/logs",
            f"--data-dir={tmp_path}/bin:/usr/local/bin:ro"]


@pytest.fixture
def board(kube, cluster, flags):
    """A job with a TensorBoard that is ready."""
    kube.submit("board", "sh", "-c", "mkdir -p /logs/run && head -c 4000000 /dev/urandom "
                ">/logs/run/events; sleep 600", flags=flags)
    kube.running("board", 60)
    cluster.kubectl("wait", "--for=condition=Available", "deployment/board-tensorboard",
                    "--timeout=60s")
    return "board"


@pytest.fixture
def forward(kube):
    started = []

    def start(*words):
        process = kube.start([kube.dtrain_path, "tensorboard", *words], text=True)
        started.append(process)
        return process, process.stdout.readline().strip()
    yield start
    for process in started:
        process.kill()
        process.communicate()


def read(url):
    return urllib.request.urlopen(url, timeout=30).read()


def test_a_port_of_this_machine_leads_to_the_jobs_tensorboard(kube, board, flags, forward, tmp_path):
    job = kube.get(board)
    assert job["tensorboard"] == "http://board-tensorboard.default:6006"
    assert "dtrain tensorboard board" in kube.dtrain("get", board).out
    assert [instance["name"] for instance in job["instances"]] == ["worker-0"]
    process, url = forward(board)
    assert url.startswith("http://127.0.0.1:")
    wanted = (tmp_path / "logs/run/events").read_bytes()
    results = {}
    threads = [threading.Thread(target=lambda i=i: results.update({i: read(f"{url}/events")}))
               for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(results[i] == wanted for i in range(4)) and len(wanted) == 4000000
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=10) == 130
    assert process.stderr.read() == ""


def test_the_port_can_be_chosen_and_one_that_is_taken_is_refused(kube, board, forward):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = kube.dtrain("tensorboard", board, f"--port={port}", expect=EXIT_ENGINE)
        assert f"cannot listen on port {port} of 127.0.0.1" in result.err
    _, url = forward(board, f"--port={port}")
    assert url == f"http://127.0.0.1:{port}"
    kube.dtrain("tensorboard", board, "--port=65536", expect=EXIT_USAGE)


def test_connections_go_on_to_the_pod_that_takes_a_lost_ones_place(kube, cluster, board, forward):
    process, url = forward(board)
    size = len(read(f"{url}/events"))
    cluster.kubectl("delete", "pod", "-l", "dtrain/tensorboard=board", "--grace-period=0",
                    "--force")

    def again():
        try:
            return len(read(f"{url}/events")) == size
        except OSError:
            return False
    until(again, "the next Pod answers", 60)
    assert process.poll() is None


def test_tensorboard_goes_with_its_job(kube, cluster, board):
    kube.dtrain("delete", board)
    until(lambda: not cluster.kubectl("get", "deployment,service,pod", "-o", "name", "-l",
                                      "dtrain/job=board")
          and not cluster.kubectl("get", "pod", "-o", "name", "-l", "dtrain/tensorboard=board"),
          "all is gone", 60)


def test_a_tensorboard_that_cannot_run_is_named_and_holds_no_job_up(kube, cluster, flags):
    kube.submit("nob", "true", flags=[*flags, "--tensorboard-image=localhost/none:1",
                                      "--image-pull-policy=Never"])
    kube.wait_for_end("nob", 0)
    until(lambda: "ErrImageNeverPull" in kube.dtrain("tensorboard", "nob", expect=EXIT_ENGINE).err,
          "why")
    kube.submit("plain", "true", flags=[BUSYBOX])
    result = kube.dtrain("tensorboard", "plain", expect=EXIT_USAGE)
    assert "submit it with --tensorboard" in result.err and result.err.count("\n") == 1


@pytest.mark.api
def test_a_logdir_that_nobody_shares_is_said(kube):
    result = kube.dtrain("submit", "--name=alone", BUSYBOX, "--tensorboard", "--dry-run=client",
                         "--", "true")
    assert "--logdir=/training_logs: not on a volume of the job" in result.err
    [line] = [line for line in result.out.splitlines() if '"tensorboard", ' in line]
    assert json.loads(line.split("command: ")[1])[1] == "--logdir=/training_logs"
    kube.dtrain("submit", "--name=alone", BUSYBOX, "--tensorboard", "--dry-run=server", "--",
                "true")
    result = kube.dtrain("submit", "--name=csi", BUSYBOX, "--tensorboard", "--logdir=/logs/a",
                         "--data=csi://oss.example?bucket=b:/logs", "--dry-run=server", "--",
                         "true")
    assert '"driver": "oss.example"' in result.out.split('"Deployment"')[1]
    assert "--logdir" not in result.err
    result = kube.dtrain("submit", f"--name={'a' * 52}", BUSYBOX, "--tensorboard", "--dry-run",
                         "--", "true", expect=EXIT_USAGE)
    assert "at most 51 characters with --tensorboard" in result.err
