"""What `exec` says to an API server, and does about what a broken one answers. The server is the
test's own: it knows one job with one Pod, and plays a script once it is asked to upgrade."""
import base64
import hashlib
import json
import os
import re
import socketserver
import struct
import subprocess
import threading
import urllib.parse

import pytest

from harness import EXIT_ENGINE, EXIT_NOT_FOUND

JOB = {"metadata": {"name": "job-worker", "namespace": "default", "uid": "u", "annotations": {
           "dtrain/roles": "worker=1"}, "labels": {"app.kubernetes.io/managed-by": "dtrain",
                                                   "dtrain/job": "job"}},
       "spec": {"completions": 1}, "status": {"ready": 1}}
POD = {"metadata": {"name": "job-worker-0", "uid": "p", "creationTimestamp": "2026-01-01T00:00:00Z",
                    "labels": {"batch.kubernetes.io/job-completion-index": "0",
                               "batch.kubernetes.io/controller-uid": "u"}},
       "spec": {"containers": [{"name": "main",
                                "command": ["/bin/sh", "/etc/dtrain/start.sh"]}]},
       "status": {"phase": "Running", "containerStatuses": [
           {"name": "main", "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}]}}
SUCCESS = b'\x03{"status":"Success"}'


def frame(payload, first=0x82):
    length = len(payload)
    head = bytes([length]) if length < 126 else b"\x7e" + struct.pack(">H", length)
    return bytes([first]) + head + payload


def exit_code(code):
    return frame(b"\x03" + json.dumps({
        "status": "Failure", "reason": "NonZeroExitCode", "details": {
            "causes": [{"reason": "ExitCode", "message": str(code)}]}}).encode())


class Handler(socketserver.StreamRequestHandler):
    timeout = 30

    def handle(self):
        while line := self.rfile.readline():
            headers = {}
            while (text := self.rfile.readline().strip()):
                name, _, value = text.decode().partition(": ")
                headers[name.lower()] = value
            path = line.split()[1].decode()
            self.server.requests.append((path, headers))
            if "/exec?" in path:
                digest = hashlib.sha1((headers["sec-websocket-key"]
                                       + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()
                self.server.script(self, base64.b64encode(digest).decode())
                return
            body = json.dumps({"metadata": {}, "items": [JOB if "/jobs" in path else POD]}).encode()
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
                             b"Content-Length: %d\r\n\r\n" % len(body) + body)

    def agree(self, accept, protocol="v5.channel.k8s.io"):
        self.wfile.write(f"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: "
                         f"Upgrade\r\nSec-WebSocket-Accept: {accept}\r\nSec-WebSocket-Protocol: "
                         f"{protocol}\r\n\r\n".encode())

    def read_frame(self):
        """A client's frame: its first byte and payload."""
        first, length = self.rfile.read(2)
        assert length & 0x80, "a client's frame is masked"
        length &= 0x7f
        if length == 126:
            [length] = struct.unpack(">H", self.rfile.read(2))
        mask = self.rfile.read(4)
        return first, bytes(byte ^ mask[i % 4] for i, byte in enumerate(self.rfile.read(length)))


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True


@pytest.fixture
def cluster(home):
    """Sets the script that the server plays; it is given the connection and the right answer."""
    with Server(("127.0.0.1", 0), Handler) as server:
        server.requests = []
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        config = home.folder / "config"
        config.write_text(json.dumps({
            "clusters": [{"name": "c", "cluster": {
                "server": f"http://127.0.0.1:{server.server_address[1]}/prefix"}}],
            "users": [{"name": "u", "user": {"token": "swordfish"}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x"}))
        home.env.update(KUBECONFIG=str(config), DTRAIN_BACKEND="kubernetes")
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def test_output_errors_and_exit_code_come_by_channel(home, cluster):
    def script(peer, accept):
        peer.agree(accept)
        # A message in two parts with a ping between them.
        peer.wfile.write(frame(b"\x01one ", 0x02) + frame(b"there?", 0x89) + frame(b"two\n", 0x80)
                         + frame(b"\x02wrong\n") + frame(b"\x01") + frame(b"\x09unknown"))
        cluster.answer = peer.read_frame()
        peer.wfile.write(frame(b"\x03") + exit_code(42))
    cluster.script = script
    result = home.dtrain("exec", "job", "--", "echo", "a b&c", expect=42)
    assert (result.out, result.err) == ("one two\n", "wrong\n")
    assert cluster.answer == (0x8a, b"there?")
    path, headers = cluster.requests[-1]
    [mark] = re.findall("command=beside&command=([0-9a-f]{32})&", path)
    assert path == ("/prefix/api/v1/namespaces/default/pods/job-worker-0/exec?container=main&"
                    "command=%2Fbin%2Fsh&command=%2Fetc%2Fdtrain%2Fstart.sh&command=beside&"
                    f"command={mark}&command=echo&command=a%20b%26c&stdin=false&stdout=true&stderr=true&tty=false")
    assert headers["authorization"] == "Bearer swordfish"
    assert headers["sec-websocket-protocol"] == "v5.channel.k8s.io, v4.channel.k8s.io"


def test_input_is_sent_masked_and_its_end_is_said(home, cluster):
    def script(peer, accept):
        peer.agree(accept)
        cluster.got = [peer.read_frame(), peer.read_frame()]
        peer.wfile.write(frame(SUCCESS))
    cluster.script = script
    home.dtrain("exec", "job", "--", "cat", stdin="hello")
    assert cluster.got == [(0x82, b"\0hello"), (0x82, b"\xff\0")]
    assert cluster.requests[-1][1]["sec-websocket-protocol"] == "v5.channel.k8s.io"


def test_an_older_server_is_spoken_to_where_no_input_has_to_end(home, cluster):
    def script(peer, accept):
        peer.agree(accept, "v4.channel.k8s.io")
        peer.wfile.write(frame(b"\x01hi\n") + frame(SUCCESS))
    cluster.script = script
    assert home.dtrain("exec", "job", "--", "echo", "hi").out == "hi\n"
    result = home.dtrain("exec", "job", "--", "cat", stdin="hello", expect=EXIT_ENGINE)
    assert "does not speak v5.channel.k8s.io over WebSocket" in result.err


STATUS = b'{"kind":"Status","message":"no exec for you","reason":"Forbidden"}'


@pytest.mark.parametrize("answer, words", [
    (b"", "closed it instead of answering"),
    (b"SSH-2.0-OpenSSH\r\n\r\n", "its answer is not HTTP/1.1"),
    (b"HTTP/1.1 200 OK\r\nX: " + b"x" * (70 << 10), "the answer's header is too long"),
    (b"HTTP/1.1 403 Forbidden\r\nContent-Length: %d\r\n\r\n" % len(STATUS) + STATUS,
     "no exec for you (Forbidden)"),
    (b"HTTP/1.1 403 Forbidden\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n" % len(STATUS) + STATUS
     + b"\r\n0\r\n\r\n", "no exec for you (Forbidden)"),
    (b"HTTP/1.1 500 Oops\r\nContent-Length: 99999999999999999999\r\n\r\nbroken", "broken"),
    (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", "does not speak"),
    (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: no\r\n"
     b"Sec-WebSocket-Protocol: v5.channel.k8s.io\r\n\r\n", "does not speak"),
], ids=range(8))
def test_a_server_that_does_not_upgrade_is_an_error_of_one_line(home, cluster, answer, words):
    cluster.script = lambda peer, accept: peer.wfile.write(answer)
    result = home.dtrain("exec", "job", "--", "true", expect=EXIT_ENGINE)
    assert words in result.err and result.err.count("\n") == 1
    assert "swordfish" not in result.err


@pytest.mark.parametrize("frames, words", [
    (b"", "ended the connection before the command had ended"),
    (frame(b"", 0x88), "ended the connection before the command had ended"),
    (b"\x82\xfe\0\0", "masked"),
    (frame(b"x", 0xf2), "a frame begins with"),
    (b"\x82\x7f\x7f" + b"\xff" * 7, "a message of more than"),
    (frame(b"\x03not json"), "the command was not run"),
    (frame(b'\x03{"status":"Failure","message":"no such container"}'), "no such container"),
    (frame(b'\x03{"status":"Failure","details":{"causes":[{"reason":"ExitCode","message":"x"}]}}'),
     "the command was not run"),
], ids=range(8))
def test_a_connection_that_breaks_is_an_error_of_one_line(home, cluster, frames, words):
    def script(peer, accept):
        peer.agree(accept)
        peer.wfile.write(frames)
    cluster.script = script
    result = home.dtrain("exec", "job", "--", "true", expect=EXIT_ENGINE)
    assert words in result.err and result.err.count("\n") == 1


def test_a_server_that_agrees_to_another_protocol_is_refused(home, cluster):
    cluster.script = lambda peer, accept: peer.agree(accept, "channel.k8s.io")
    result = home.dtrain("exec", "job", "--", "true", expect=EXIT_ENGINE)
    assert "does not speak v5.channel.k8s.io or v4.channel.k8s.io over WebSocket" in result.err


def runs_in(cluster, folder, most=None):
    """The server runs what it is asked to there, and ends the connection after so many bytes."""
    def script(peer, accept):
        words = urllib.parse.parse_qs(cluster.requests[-1][0].partition("?")[2])["command"]
        done = subprocess.run(words, cwd=folder, capture_output=True)
        peer.agree(accept)
        for at in range(0, len(done.stdout[:most]), 30000):
            peer.wfile.write(frame(b"\x01" + done.stdout[:most][at:at + 30000]))
        peer.wfile.write(frame(b"\x02" + done.stderr))
        if most is None:
            peer.wfile.write(exit_code(done.returncode) if done.returncode else frame(SUCCESS))
    cluster.script = script


def test_files_are_copied_by_the_containers_tar(home, cluster):
    there, here = home.folder / "there", home.folder / "here"
    (there / "ckpt/deep").mkdir(parents=True)
    here.mkdir()
    (there / "ckpt/deep/it's $HOME").write_bytes(bytes(range(256)) * 1000)
    runs_in(cluster, there)
    home.dtrain("cp", "job:ckpt", here)
    assert (here / "ckpt/deep/it's $HOME").read_bytes() == bytes(range(256)) * 1000
    home.dtrain("cp", "-i", "worker-0", f"job:{there}/ckpt/deep/it's $HOME", here / "file")
    assert (here / "file").stat().st_size == 256000
    result = home.dtrain("cp", "job:none", here, expect=EXIT_NOT_FOUND)
    assert f"{there}/none" in result.err and result.err.count("\n") == 1
    runs_in(cluster, there, 100000)
    result = home.dtrain("cp", "job:ckpt", here / "half", expect=EXIT_ENGINE)
    assert "ended the connection" in result.err and result.err.count("\n") == 1
    assert sorted(os.listdir(here)) == ["ckpt", "file"]


def test_files_of_a_pod_that_has_ended_are_not_looked_for(home, cluster, monkeypatch):
    monkeypatch.setitem(POD["status"], "phase", "Succeeded")
    monkeypatch.setitem(POD["status"]["containerStatuses"][0], "state", {"terminated": {"exitCode": 0}})
    result = home.dtrain("cp", "job:ckpt", ".", expect=EXIT_ENGINE)
    assert "not running" in result.err and "--data" in result.err and result.err.count("\n") == 1
