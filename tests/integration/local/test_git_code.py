"""Code from a Git server that asks who one is."""
import base64
import http.server
import os
import pathlib
import subprocess
import threading

import pytest

from harness import BRIEF_LOOKUPS, EXIT_USAGE, git_repository

TOKEN = "s3cret-t0ken"
USER = "me"
BACKEND = pathlib.Path(subprocess.run(["git", "--exec-path"], capture_output=True, text=True,
                                      check=True).stdout.strip()) / "git-http-backend"


class Handler(http.server.BaseHTTPRequestHandler):
    """git http-backend behind HTTP's basic authentication."""

    def answer(self):
        wanted = "Basic " + base64.b64encode(f"{USER}:{TOKEN}".encode()).decode()
        if self.headers.get("Authorization") != wanted:
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="test"')
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        path, _, query = self.path.partition("?")
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        result = subprocess.run([BACKEND], input=body, capture_output=True, env={
            "GIT_PROJECT_ROOT": self.server.root, "GIT_HTTP_EXPORT_ALL": "1", "PATH_INFO": path,
            "QUERY_STRING": query, "REQUEST_METHOD": self.command, "PATH": os.environ["PATH"],
            "CONTENT_TYPE": self.headers.get("Content-Type", ""), "HOME": self.server.root,
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            "CONTENT_LENGTH": str(len(body))})
        head, _, content = result.stdout.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        self.send_response(int(fields.pop("Status", "200").split()[0]))
        for field in fields.items():
            self.send_header(*field)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = answer

    def log_message(self, *_):
        pass


@pytest.fixture
def url(home):
    folder = home.folder / "served" / "code"
    git_repository(home, folder, "echo from the server")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.root = str(folder.parent)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/code/.git"
    server.shutdown()
    server.server_close()


def submit(home, source, *flags, env=None, expect=0):
    return home.dtrain("submit", "--name=g", "--sync-mode=git", f"--sync-source={source}", *flags,
                       "--", "sh", "train.sh", env=env, expect=expect)


def files_with_the_token(home):
    return [path for path in home.folder.rglob("*")
            if path.is_file() and TOKEN.encode() in path.read_bytes()]


def test_a_token_from_the_environment_or_a_file_opens_a_private_repository(home, url):
    # A helper that would write down what it hears.
    home.run(["git", "config", "--global", "credential.helper", "store"])
    submit(home, url, "--sync-user=me", env={"DTRAIN_GIT_TOKEN": TOKEN})
    home.dtrain("wait", "g")
    assert home.lines("g") == ["from the server"] and files_with_the_token(home) == []
    home.dtrain("delete", "g")
    token = home.folder / "token"
    token.write_text(TOKEN + "\n")
    token.chmod(0o644)
    assert "chmod 600" in submit(home, url, "--sync-user=me", "--sync-token-file=token",
                                 expect=EXIT_USAGE).err
    token.chmod(0o600)
    home.dtrain("code", "add", "private", f"--git={url}@main", "--user=me", "--token-file=token")
    home.dtrain("submit", "--name=g", "--code=private", "--wait", "--", "sh", "train.sh")
    assert home.lines("g") == ["from the server"] and files_with_the_token(home) == [token]


@pytest.mark.parametrize("change, env, words", [
    (str, {}, ["Authentication failed|could not read Username", "DTRAIN_GIT_TOKEN"]),
    (str, {"DTRAIN_GIT_TOKEN": "wrong"}, ["Authentication failed", "--sync-user"]),
    (lambda url: url + "@nobranch", {"DTRAIN_GIT_TOKEN": TOKEN}, ["nobranch"]),
    (lambda url: url.replace("/code", "/nothing"), {"DTRAIN_GIT_TOKEN": TOKEN}, ["not found"]),
    (lambda url: "http://no-such-host.invalid/x.git", BRIEF_LOOKUPS, ["no-such-host"]),
    (lambda url: "http://127.0.0.1:1/x.git", {}, ["127.0.0.1"]),
    (str, {"PATH": "/nowhere"}, ["git", "install"]),
], ids=["no token", "wrong token", "no ref", "no repository", "no host", "refused", "no git"])
def test_a_repository_that_cannot_be_had_is_one_line_and_leaves_nothing(home, url, change, env, words):
    result = submit(home, change(url), "--sync-user=me", env=env, expect=EXIT_USAGE)
    assert result.err.count("\n") == 1 and "--sync-source=" in result.err, result.err
    assert all(any(word in result.err for word in each.split("|")) for each in words), result.err
    assert TOKEN not in result.err and files_with_the_token(home) == []
    assert home.dtrain("list", "-o", "name").out == ""
    assert list((home.state / "dtrain" / "staging").iterdir()) == []
