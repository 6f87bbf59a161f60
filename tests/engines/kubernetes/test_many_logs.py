"""Following the logs of many Pods in bounded memory."""
import pathlib
import re
import resource
import subprocess
import sys

import pytest

PODS, LINES = 1000, 2000
MOST_MEMORY = 256 << 20


@pytest.fixture
def server(tmp_path):
    """A kubeconfig of log_server.py's."""
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                    "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=localhost",
                    "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", tmp_path / "tls.key",
                    "-out", tmp_path / "tls.crt"], check=True, capture_output=True)
    command = [sys.executable, pathlib.Path(__file__).with_name("log_server.py"), tmp_path,
               str(PODS), str(LINES)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        port = process.stdout.readline().strip()
        config = tmp_path / "config"
        config.write_text(
            "clusters: [{name: c, cluster: {certificate-authority: "
            f"{tmp_path}/tls.crt, server: 'https://127.0.0.1:{port}'}}}}]\n"
            "users: [{name: u, user: {token: t}}]\n"
            "contexts: [{name: x, context: {cluster: c, user: u}}]\ncurrent-context: x\n")
        yield config
        process.kill()


@pytest.mark.api
def test_the_logs_of_a_thousand_pods_are_followed_within_256_mib(home, server, build):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    try:
        process = home.start([home.dtrain_path, "logs", "-b", "kubernetes", "-f", "many"],
                             env={"KUBECONFIG": str(server)},
                             stderr=subprocess.DEVNULL)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    try:
        wanted = (PODS - 1) * LINES
        last = {}
        for line in process.stdout:
            instance, _, text = line.partition(b"|")
            if text == b" slow\n":
                continue
            number = int(text.split()[1])
            assert last.get(instance, -1) + 1 == number  # Each log in order, and whole.
            last[instance] = number
            wanted -= 1
            if wanted == 0:
                break
        assert wanted == 0
        status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
        peak = int(re.search(r"VmHWM:\s+(\d+) kB", status).group(1)) << 10
    finally:
        process.kill()
        process.communicate()
    print(f"{PODS} Pods, {PODS * LINES} lines: {peak >> 20} MiB at most")
    assert peak <= MOST_MEMORY
