"""Data of a bucket: copied before the job starts, of which what changed alone is brought again. The
store is one of our own, which can fail; engines/kubernetes/test_buckets.py asks a real one."""
import collections
import fcntl
import hashlib
import http.server
import os
import re
import signal
import subprocess
import threading
import urllib.parse
from xml.sax.saxutils import escape

import pytest

from harness import EXIT_ENGINE, EXIT_ERROR, EXIT_USAGE, needs_mounts, until

TIME = "2026-11-21T13:05:07.000Z"
PAGE = 3  # Objects


class Store:
    """Objects by key; `refused`: what is answered once, and the next time not; `cut`: keys of which
    the half is sent; `silent`: keys whose second half is never sent, "" for the list."""

    def __init__(self):
        self.objects = {}
        self.times = {}
        self.asked = []
        self.headers = []
        self.refused = collections.Counter()
        self.cut = set()
        self.silent = set()
        self.list = None  # Another answer than a list.
        self.stopping = threading.Event()

    def etag(self, key):
        return f'"{hashlib.md5(self.objects[key]).hexdigest()}"'

    def page(self, prefix, start):
        keys = sorted(key for key in self.objects if key.startswith(prefix))
        more = start + PAGE < len(keys)
        return "".join([
            "<?xml version='1.0'?><ListBucketResult xmlns='http://s3.amazonaws.com/doc/2006-03-01/'>",
            f"<IsTruncated>{str(more).lower()}</IsTruncated>",
            f"<NextContinuationToken>{start + PAGE}</NextContinuationToken>" if more else "",
            *(f"<Contents><Key>{escape(key)}</Key><Size>{len(self.objects[key])}</Size>"
              f"<LastModified>{self.times.get(key, TIME)}</LastModified>"
              f"<ETag>{escape(self.etag(key))}</ETag></Contents>"
              for key in keys[start:start + PAGE]),
            "</ListBucketResult>"])


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, status, body, headers=()):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        for header in headers:
            self.send_header(*header)
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        store = self.server.store
        url = urllib.parse.urlsplit(self.path)
        store.headers.append(dict(self.headers))
        if self.path.startswith("/bucket/?"):
            query = dict(urllib.parse.parse_qsl(url.query, keep_blank_values=True))
            start = int(query.get("continuation-token", 0))
            if "" in store.silent:
                store.stopping.wait(60)
            self.answer(200, (store.list or store.page(query["prefix"], start)).encode())
            return
        key = urllib.parse.unquote(url.path[len("/bucket/"):])
        store.asked.append(key)
        if store.refused[key] > 0:
            store.refused[key] -= 1
            self.answer(503, b"<Error><Code>SlowDown</Code><Message>Later.</Message></Error>")
        elif key not in store.objects:
            self.answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
        elif self.headers["If-Match"] != store.etag(key):
            self.answer(412, b"<Error><Code>PreconditionFailed</Code></Error>")
        elif key in store.cut | store.silent:
            body = store.objects[key]
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[:len(body) // 2])
            self.wfile.flush()
            self.close_connection = True
            if key in store.silent:
                store.stopping.wait(60)
            store.cut.discard(key)
        else:
            self.answer(200, store.objects[key])

    def log_message(self, *words):
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *words):
        pass  # Who asked has gone.


@pytest.fixture
def store(home):
    with Server(("127.0.0.1", 0), Handler) as server:
        server.store = Store()
        server.store.objects = {"set/a": b"a" * 10, "set/deep/b +ü%": b"b" * 70_000, "set/c": b"",
                                "set/deep/er/d": b"d", "set/folder/": b"", "settle": b"other"}
        thread = threading.Thread(target=server.serve_forever, args=[0.02])
        thread.start()
        home.env.update(AWS_ACCESS_KEY_ID="anna", AWS_SECRET_ACCESS_KEY="opensesame",
                        AWS_ENDPOINT_URL=f"http://127.0.0.1:{server.server_port}")
        yield server.store
        server.store.stopping.set()
        server.shutdown()
        thread.join()


def files(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*")
            if path.is_file()}


def wanted(store):
    return {key[len("set/"):]: data for key, data in store.objects.items()
            if key.startswith("set/") and not key.endswith("/")}


def copies(home):
    """The folders of this machine's copies, one a bucket."""
    return sorted((home.folder / "cache" / "dtrain" / "data").iterdir())


def versions(copy):
    return sorted(path.name for path in copy.iterdir() if path.name.isdigit())


def start_reader(home, name):
    """A job that has the bucket, and says what is in it once there is a file NAME-go."""
    go = home.folder / f"{name}-go"
    home.dtrain("submit", f"--name={name}", "--data=s3://bucket/set:/dtrain-test-data:ro", "--",
                "sh", "-c", f"cd /dtrain-test-data; until [ -e {go} ]; do sleep 0.05; done; "
                "find . -type f | sort | xargs -d '\\n' md5sum")
    return go


def sums(data):
    return [f"{hashlib.md5(text).hexdigest()}  ./{path}" for path, text in sorted(data.items())]


def change(store, number):
    """What a bucket may do to a job that reads it: an object changes, one goes, one comes."""
    store.objects["set/a"] = b"%d" % number * 10
    store.times["set/a"] = f"2026-11-21T14:05:{number:02}.000Z"
    store.objects.pop("set/deep/er/d", None)
    store.objects[f"set/more-{number}"] = b"more"


def test_a_buckets_folder_is_copied_and_what_is_there_is_not_brought_again(home, store):
    copy = ["data", "copy", "s3://bucket/set", "out"]
    assert "4 files, 70.0 kB; new: 4, 70.0 kB" in home.dtrain(*copy).err
    assert files(home.folder / "out") == wanted(store)
    assert "new: 0, 0 bytes" in home.dtrain(*copy).err
    store.objects["set/a"] = b"A" * 10  # Of the same size.
    store.times["set/a"] = "2026-11-21T13:05:08.000Z"
    store.objects["set/new"] = b"new"
    del store.objects["set/c"]
    (home.folder / "out" / "mine").write_text("stays")
    store.asked.clear()
    assert "new: 2, 13 bytes" in home.dtrain(*copy).err
    assert sorted(store.asked) == ["set/a", "set/new"]
    assert files(home.folder / "out") == {**wanted(store), "c": b"", "mine": b"stays"}


@needs_mounts
def test_a_job_finds_the_bucket_at_its_path_as_it_is_now(home, store):
    home.dtrain("data", "add", "pics", "--bucket=s3://bucket/set",
                f"--endpoint={home.env.pop('AWS_ENDPOINT_URL')}", "--read-only")
    look = ["--", "sh", "-c", "find . -type f | sort | xargs -d '\\n' md5sum; echo >new || echo no"]
    lines = {}
    for name in "before", "after":
        home.dtrain("submit", f"--name={name}", "--data=pics:/dtrain-test-data",
                    "--working-dir=/dtrain-test-data", "--wait", *look)
        lines[name] = [line for line in home.lines(name) if "Read-only" not in line]
        assert lines[name] == [*(f"{hashlib.md5(data).hexdigest()}  ./{path}"
                                 for path, data in sorted(wanted(store).items())), "no"]
        store.objects["set/more"] = b"more"
        store.objects.pop("set/deep/er/d", None)
    assert len(store.asked) == 5, "what did not change is not brought again"
    assert "./more" in lines["after"][-2]


@needs_mounts
def test_a_running_job_keeps_its_data_while_another_brings_the_bucket_as_it_is_now(home, store):
    before = wanted(store)
    go = start_reader(home, "first")
    change(store, 1)
    store.asked.clear()
    after = wanted(store)
    start_reader(home, "second").touch()
    home.dtrain("wait", "second")
    assert home.lines("second") == sums(after)
    assert sorted(store.asked) == ["set/a", "set/more-1"], "the rest is shared"
    go.touch()
    home.dtrain("wait", "first")
    assert home.lines("first") == sums(before)


@needs_mounts
def test_a_restarted_job_has_the_data_that_it_began_with(home, store):
    before = wanted(store)
    go = home.folder / "go"
    home.dtrain("submit", "--name=again", "--max-restarts=1",
                "--data=s3://bucket/set:/dtrain-test-data:ro", "--", "sh", "-c",
                f"until [ -e {go} ]; do sleep 0.05; done; cd /dtrain-test-data; "
                "find . -type f | sort | xargs -d '\\n' md5sum; exit $((1 - DTRAIN_RESTART_COUNT))")
    change(store, 1)
    start_reader(home, "other").touch()
    home.dtrain("wait", "other")
    go.touch()
    home.dtrain("wait", "again")
    assert home.lines("again") == sums(before)


def is_free(lock):
    """No job has the copy: its supervisor has ended."""
    with open(lock) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


@needs_mounts
def test_a_copy_that_no_job_has_makes_room_for_the_next(home, store):
    go = start_reader(home, "first")
    [copy] = copies(home)
    change(store, 1)
    start_reader(home, "second").touch()
    assert versions(copy) == ["1", "2"]
    go.touch()
    for name in "first", "second":
        home.dtrain("wait", name)
    until(lambda: is_free(copy / "1.lock") and is_free(copy / "2.lock"), "the jobs have ended")
    change(store, 2)
    start_reader(home, "third").touch()
    home.dtrain("wait", "third")
    assert versions(copy) == ["2"] and files(copy / "current") == wanted(store)


@needs_mounts
def test_a_copy_long_unused_goes_with_the_next_submission_or_prune_but_not_one_in_use(home, store):
    go = start_reader(home, "first")
    [used] = copies(home)
    store.objects["other/x"] = b"x"
    other = ["submit", "--data=s3://bucket/other:/dtrain-test-data:ro", "--wait", "--", "true"]
    home.dtrain(*other, "--name=second")
    [unused] = set(copies(home)) - {used}
    until(lambda: is_free(unused / "1.lock"), "its job has ended")
    for copy in used, unused:
        os.utime(copy / "lock", (1, 1))
    result = home.dtrain("prune", "--since=1d", "--dry-run").out
    assert f"{unused} would be deleted" in result and str(used) not in result
    assert copies(home) == sorted([used, unused])
    assert f"{unused} deleted" in home.dtrain("prune", "--since=1d").out
    assert copies(home) == [used]
    go.touch()
    home.dtrain("wait", "first")
    until(lambda: is_free(used / "1.lock"), "its job has ended")
    os.utime(used / "lock", (1, 1))
    home.dtrain(*other, "--name=third")
    assert copies(home) == [unused]


@needs_mounts
def test_keys_sign_and_are_in_no_plan_and_no_record(home, store):
    data = "--data=s3://bucket/set:/dtrain-test-data:ro"
    home.dtrain("submit", "--name=signed", data, "--wait", "--", "true")
    assert all("Credential=anna/" in headers["Authorization"] for headers in store.headers)
    plan = home.dtrain("submit", data, "--dry-run", "--", "true").out
    clone = home.dtrain("clone", "signed", "--dry-run").out
    record = home.dtrain("get", "signed", "-o", "yaml").out
    assert "/dtrain-test-data" in plan and "/dtrain-test-data" in clone
    assert "opensesame" not in plan + clone + record


def test_temporary_keys_sign_their_token_too(home, store):
    home.dtrain("data", "copy", "s3://bucket/set", "out", env={"AWS_SESSION_TOKEN": "to/ken=="})
    assert all(headers["x-amz-security-token"] == "to/ken==" and re.search(
        "SignedHeaders=[^,]*x-amz-security-token", headers["Authorization"])
               for headers in store.headers)


def test_an_interrupt_ends_the_wait_for_a_silent_store(home, store):
    store.silent.add("")
    process = home.start([home.dtrain_path, "data", "copy", "s3://bucket/set", "out"], text=True)
    until(lambda: store.headers, "it is asked")
    process.send_signal(signal.SIGINT)
    assert "interrupted" in process.communicate(timeout=20 * home.build.slowness)[1]
    assert process.returncode == 130


def test_keys_of_a_file_that_others_can_read_are_refused(home, store):
    keys = home.folder / "keys"
    keys.write_text("[default]\naws_access_key_id = bert\naws_secret_access_key = x\n")
    home.dtrain("data", "add", "pics", "--bucket=s3://bucket/set", "--credentials-file=keys")
    keys.chmod(0o644)
    assert "chmod 600" in home.dtrain("data", "copy", "pics", "out", expect=EXIT_USAGE).err
    keys.chmod(0o600)
    home.dtrain("data", "copy", "pics", "out")
    assert "Credential=bert/" in store.headers[-1]["Authorization"]


def test_without_keys_nothing_is_signed(home, store):
    del home.env["AWS_ACCESS_KEY_ID"]
    home.dtrain("data", "copy", "s3://bucket/set", "out")
    assert all("Authorization" not in headers for headers in store.headers)


def test_what_breaks_off_or_is_refused_for_now_is_asked_for_again(home, store):
    store.refused["set/a"] = 2
    store.cut.add("set/deep/b +ü%")
    home.dtrain("data", "copy", "s3://bucket/set", "out")
    assert files(home.folder / "out") == wanted(store)
    store.refused["set/c"] = 100
    result = home.dtrain("data", "copy", "s3://bucket/set", "other", expect=EXIT_USAGE)
    assert "s3://bucket/set/c: its store refuses: SlowDown: Later." in result.err
    assert "set/c" not in files(home.folder / "other")
    assert not (home.folder / "other" / ".dtrain-parts").exists()


def test_an_object_that_changes_meanwhile_is_named(home, store):
    etag = store.etag
    store.etag = lambda key: '"old"' if key == "set/a" and not store.asked else etag(key)
    result = home.dtrain("data", "copy", "s3://bucket/set", "out", expect=EXIT_ERROR)
    assert "s3://bucket/set/a: has changed since the bucket was listed" in result.err
    assert "a" not in files(home.folder / "out")


@pytest.mark.parametrize("key", ["set/../../evil", "set//etc/evil", "set/./evil", "set/a/..",
                                 "set/.dtrain-parts/evil", "set/" + "x" * 300])
def test_an_object_that_would_leave_the_folder_is_refused(home, store, key):
    store.objects[key] = b"evil"
    result = home.dtrain("data", "copy", "s3://bucket/set", "out", expect=EXIT_ERROR)
    assert "cannot be stored as a file" in result.err and store.asked == []
    assert files(home.folder / "out") == {}


@pytest.mark.parametrize("text", ["", "no XML", "<html><body>hello</body></html>",
                                  "<ListBucketResult><Contents><Key>a</Key></Contents>"
                                  "</ListBucketResult>",
                                  "<ListBucketResult><IsTruncated>true</IsTruncated>"
                                  "</ListBucketResult>"])
def test_a_store_that_talks_nonsense_is_refused_in_one_line(home, store, text):
    store.list = text or " "
    result = home.dtrain("data", "copy", "s3://bucket/set", "out", expect=EXIT_ERROR)
    assert "s3://bucket/set: its store" in result.err and result.err.count("\n") == 1


def test_a_list_without_an_end_is_given_up(home, store):
    store.list = "x" * (17 << 20)
    assert "answer is too long" in home.dtrain("data", "copy", "s3://bucket/set", "out",
                                         expect=EXIT_ERROR).err


@needs_mounts
def test_an_interrupt_keeps_what_is_whole_and_no_job_is_left(home, store):
    store.silent.add("set/deep/b +ü%")
    process = home.start([home.dtrain_path, "submit", "--name=cut", "--data=s3://bucket/set:/x:ro",
                          "--", "true"], stderr=subprocess.PIPE, text=True)
    until(lambda: len(store.asked) == 4, "all is asked for")
    process.send_signal(signal.SIGINT)
    assert "nothing was submitted" in process.communicate(timeout=20 * home.build.slowness)[1]
    assert process.returncode == 130
    home.dtrain("get", "cut", expect=3)
    [cache] = copies(home)
    kept = files(cache / "next")
    assert "deep/b +ü%" not in kept and kept.items() <= wanted(store).items()
    store.silent.clear()
    store.asked.clear()
    home.dtrain("submit", "--name=cut", "--data=s3://bucket/set:/x:ro", "--", "true")
    assert sorted(store.asked) == sorted(f"set/{path}" for path in wanted(store) if path not in kept)
    assert files(cache / "current") == wanted(store)


@pytest.mark.parametrize("words, code, text", [
    (["s3://bucket/none", "out"], EXIT_USAGE, "no objects found"),
    (["s3://", "out"], EXIT_USAGE, "s3://BUCKET/PREFIX"),
    (["s3://bucket?endpoint=ftp%3A//x", "out"], EXIT_USAGE, "https://HOST"),
    (["s3://bucket?password=x", "out"], EXIT_USAGE, "use endpoint, region or credentials-file"),
    (["s3://bucket/set?endpoint=http%3A//127.0.0.1:1", "out"], EXIT_ENGINE, "cannot reach its store"),
    (["oss://bucket/set", "out"], EXIT_USAGE, "OSS_REGION"),
    (["s3://bucket/set?credentials-file=none", "out"], EXIT_USAGE, "none"),
    (["s3://bucket/set", "/proc/none"], EXIT_ERROR, "/proc/none")])
def test_a_bucket_that_cannot_be_had_is_said_in_one_line(home, store, words, code, text):
    result = home.dtrain("data", "copy", *words, expect=code)
    assert text in result.err and result.err.count("\n") == 1
    assert not (home.folder / "out").exists() or files(home.folder / "out") == {}


def test_a_bucket_that_would_be_written_to_is_refused(home, store):
    result = home.dtrain("submit", "--data=s3://bucket/set:/x", "--", "true", expect=EXIT_USAGE)
    assert re.search(r"nothing is written back.*--data=s3://bucket/set:/x:ro", result.err)
    assert store.headers == []
    assert not os.path.exists("/x")
