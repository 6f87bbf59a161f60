"""The real programs, each test in a home of its own that must be empty of processes at its end."""
import contextlib
import dataclasses
import fcntl
import json
import os
import pathlib
import signal
import socket
import subprocess
import tempfile
import time

import pytest

PYTHON = "/usr/bin/python3"

EXIT_OK, EXIT_ERROR, EXIT_USAGE, EXIT_NOT_FOUND, EXIT_ENGINE = range(5)
EXIT_JOB_FAILED = 100

# In a chroot not even root has them: what part of the tree would then be private has no name there.
CAN_MOUNT = subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode == 0
needs_mounts = pytest.mark.skipif(not CAN_MOUNT,
                                  reason="this machine gives nobody mounts of their own")

# What chance decides is outside of the gate, which has fixed cases of it.
soak = pytest.mark.skipif(not os.environ.get("DTRAIN_SOAK"),
                          reason="random rounds: DTRAIN_SOAK=1 runs them")

# A name outside of this machine is given up soon where nobody answers for it.
BRIEF_LOOKUPS = {"RES_OPTIONS": "timeout:1 attempts:1"}

# How much longer than the release build what is tested may take: conftest.py's `build` sets it.
slowness = 1


def bring(program, *words, env=None):
    """Runs a cluster's own program. That it fails is an error with its last words, which its daemons, who
    may outlive it, share: so they go to a file."""
    with tempfile.TemporaryFile() as said:
        code = subprocess.run([program, *words], stdin=subprocess.DEVNULL, stdout=said, stderr=said,
                              env={**os.environ, **(env or {})}).returncode
        said.seek(0)
        text = said.read().decode(errors="replace")
    if code != 0:
        print(text)
        name = pathlib.Path(program).relative_to(pathlib.Path(__file__).parent)
        raise RuntimeError(f"{name} {words[0]} ended with {code}: "
                           f"{' | '.join(text.strip().splitlines()[-3:])}")


@dataclasses.dataclass(frozen=True)
class Build:
    folder: pathlib.Path
    sanitizer: str  # "", "address,undefined" or "thread"

    @staticmethod
    def at(folder):
        folder = pathlib.Path(folder).resolve()
        cache = folder / "CMakeCache.txt"  # Which installed programs have none of.
        for line in cache.read_text().splitlines() if cache.exists() else []:
            if line.startswith("DTRAIN_SANITIZE:"):
                return Build(folder, line.partition("=")[2])
        return Build(folder, "")

    @property
    def bin(self):
        return self.folder / "bin"

    @property
    def slowness(self):
        """How much longer than the release build things may take."""
        return 8 if self.sanitizer else 1


@dataclasses.dataclass(frozen=True)
class Result:
    """A program's end. Text is decoded so that every byte comes back with os.fsencode()."""
    command: list
    code: int
    out: str
    err: str

    def __str__(self):
        return (f"{self.command} exited with {self.code}\n"
                f"--- stdout\n{self.out}--- stderr\n{self.err}")

    def json(self):
        return json.loads(self.out)


def git_repository(home, folder, script):
    """Makes a repository whose branch main holds train.sh; returns what calls git in it."""
    folder.mkdir(parents=True)

    def git(*words):
        home.run(["git", "-c", "user.name=t", "-c", "user.email=t@example.org", *words], cwd=folder)
    git("init", "--quiet", "--initial-branch=main")
    (folder / "train.sh").write_text(script + "\n")
    git("add", ".")
    git("commit", "--quiet", "-m", "first")
    return git


def within(seconds, condition, longest_pause=0.25):
    """The first true value that `condition` gives, or its last one, which began after the deadline:
    `seconds` of a release build's. Pauses grow from 10 ms to the longest, which is 1 s where
    `condition` starts a costly program."""
    deadline = time.monotonic() + seconds * slowness
    pause = 0.01
    while True:
        is_last = time.monotonic() >= deadline
        value = condition()
        if value or is_last:
            return value
        time.sleep(max(0, min(pause, deadline - time.monotonic())))
        pause = min(pause * 1.5, longest_pause)


def until(condition, what, seconds=60, longest_pause=0.25):
    """As `within`, and fails where it gives none; `what`: in words, or a function that says it."""
    value = within(seconds, condition, longest_pause)
    assert value, f"not within {seconds * slowness} s: {what() if callable(what) else what}"
    return value


@contextlib.contextmanager
def small_disk(folder):
    """A disk of 2 MiB in that folder."""
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m,mode=700", "tmpfs", folder],
                      capture_output=True).returncode != 0:
        pytest.skip("cannot mount a small disk here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def fill(disk):
    """Fills a disk to its last byte."""
    with open(disk / "filler", "wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass


@contextlib.contextmanager
def alone(what):
    """Nobody else on this machine has `what` meanwhile: another session is waited for. The kernel
    takes it from one that is killed."""
    with contextlib.ExitStack() as stack:
        def taken():
            try:
                lock = open(f"/tmp/dtrain-{what}.lock", "w")
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:  # Another's.
                return False
            stack.enter_context(lock)
            return True
        until(taken, f"another session's {what} on this machine is over", 300, longest_pause=1)
        yield


_held_ports = []


def held_ports(count):
    """Ports of 127.0.0.1 that the kernel gives to nobody else until this process ends: bound, with
    no listener. A program that sets SO_REUSEADDR, as servers do, can listen on them."""
    held = [socket.socket() for _ in range(count)]
    for one in held:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.bind(("127.0.0.1", 0))
    _held_ports.extend(held)
    return [one.getsockname()[1] for one in held]


def alive(pid):
    """True while a process runs; one that ended and was not reaped yet does not count."""
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def environment_of(pid):
    """The variables that a process was started with, as bytes; None for one that is gone."""
    try:
        entries = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    return dict(entry.split(b"=", 1) for entry in entries if b"=" in entry)


def command_of(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(
            errors="replace").strip()
    except OSError:
        return ""


@dataclasses.dataclass(frozen=True)
class Engine:
    """A backend that the conformance suite runs on."""
    home: object
    flags: tuple              # what `submit` and the others need to reach it
    submit_flags: tuple = ()  # what `submit` needs beside them
    # Gives what `submit` needs for a failed rank to take the others along into the next run.
    whole_restarts: object = contextlib.nullcontext

    def submit(self, name, *command, flags=(), **options):
        return self.home.submit(name, *command, flags=(*self.flags, *self.submit_flags, *flags),
                                **options)

    def dtrain(self, verb, *args, **options):
        return self.home.dtrain(verb, *self.flags, *args, **options)

    def lacks(self):
        """What its table says that it cannot do, with the reason."""
        found = self.dtrain("check", "-o", "json", expect=None).json()
        return {each["what"]: each["found"] for each in found if each["level"] == "note"}

    def takes(self, flag):
        """Whether its table has it take that flag of submit's: Tab offers no other."""
        return flag in self.home.dtrain("__complete", "bash", "submit", *self.flags, flag).out

    def get(self, name, *flags):
        return self.dtrain("get", name, *flags, "-o", "json").json()

    def wait(self, name, expect=0):
        return self.dtrain("wait", name, expect=expect)

    def lines(self, name, *flags):
        return self.dtrain("logs", name, *flags).out.splitlines()


class Home:
    """A user's home folder, with nothing in it, and the programs run in it."""

    program = "dtrain"  # Or one with other engines.

    def __init__(self, folder, build):
        self.build = build
        self.folder = pathlib.Path(folder)
        self.state = self.folder / "state"
        self.scratch = self.folder / "tmp"
        self.reports = self.folder / "sanitizer-reports"
        for path in (self.folder, self.scratch, self.reports):
            path.mkdir(exist_ok=True)
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "XDG_STATE_HOME": str(self.state),
            "XDG_CONFIG_HOME": str(self.folder / "config"),
            "XDG_CACHE_HOME": str(self.folder / "cache"),
            "DTRAIN_GPU_CLAIMS": str(self.folder / "gpu-claims"),
            "TMPDIR": str(self.scratch),
            "LANG": "C.UTF-8",
            "TERM": "xterm-256color",
        }
        for options in ("ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS"):
            self.env[options] = f"{os.environ.get(options, '')}:log_path={self.reports}/report"

    @property
    def dtrain_path(self):
        return str(self.build.bin / self.program)

    @property
    def trainer_path(self):
        return str(self.build.bin / "dtrain-trainer")

    # Running programs.

    def run(self, command, *, expect=EXIT_OK, env=None, cwd=None, stdin=subprocess.DEVNULL,
            seconds=60):
        """Runs a program to its end, which must be exit code `expect` (None: any)."""
        command = [os.fspath(word) for word in command]
        process = subprocess.run(command, env={**self.env, **(env or {})}, cwd=cwd or self.folder,
                                 stdin=stdin if not isinstance(stdin, (str, bytes)) else None,
                                 input=os.fsencode(stdin) if isinstance(stdin, (str, bytes))
                                 else None, capture_output=True,
                                 timeout=seconds * self.build.slowness)
        result = Result(command, process.returncode, os.fsdecode(process.stdout),
                        os.fsdecode(process.stderr))
        assert expect is None or result.code == expect, str(result)
        return result

    def dtrain(self, *args, **options):
        return self.run([self.dtrain_path, *args], **options)

    def trainer(self, *args, **options):
        return self.run([self.trainer_path, *args], **options)

    def start(self, command, *, env=None, **options):
        """Starts a program and gives its Popen, with pipes unless options say otherwise."""
        pipes = dict(stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        return subprocess.Popen([os.fspath(word) for word in command], cwd=self.folder,
                                env={**self.env, **(env or {})}, **{**pipes, **options})

    def script(self, name, text, shebang="#!/bin/sh"):
        """An executable script in the home folder."""
        path = self.folder / name
        path.write_text(f"{shebang}\n{text}\n")
        path.chmod(0o755)
        return str(path)

    def stand_in(self, name, text):
        """A script that is found before the program of that name."""
        tools = self.folder / "tools"
        tools.mkdir(exist_ok=True)
        self.script(f"tools/{name}", text)
        if not self.env["PATH"].startswith(f"{tools}:"):
            self.env["PATH"] = f"{tools}:{self.env['PATH']}"

    # Jobs.

    def submit(self, name, *command, flags=(), **options):
        return self.dtrain("submit", f"--name={name}", *flags, "--", *command, **options)

    def get(self, name):
        return self.dtrain("get", name, "-o", "json").json()

    def status(self, name):
        return self.get(name)["status"]

    def wait_for_end(self, name, expect=None):
        """Waits for the job's end and gives its status as data."""
        self.dtrain("wait", name, expect=expect)
        return self.get(name)

    def running(self, name, seconds=60):
        """The job as data, once every rank of it runs."""
        def job_if_running():
            job = self.get(name)
            assert job["status"] != "FAILED", job
            states = {instance["status"] for instance in job["instances"]}
            return job if job["status"] == "RUNNING" and states == {"Running"} else None
        return until(job_if_running, f"{name} runs", seconds)

    def pids(self, name):
        """The ranks' process ids, in rank order."""
        return [instance["pid"] for instance in self.running(name)["instances"]]

    def wait_for_file(self, path, seconds=60):
        """The bytes of a file that a rank writes by renaming it into place."""
        path = self.folder / path
        until(path.exists, f"{path} is there", seconds)
        return path.read_bytes()

    def lines(self, name, *flags):
        return self.dtrain("logs", name, *flags).out.splitlines()

    # What is left.

    def processes(self):
        """Process ids that were started in this home and still run."""
        mine = os.fsencode(self.state)
        found = []
        for entry in os.listdir("/proc"):
            if entry.isdigit() and int(entry) != os.getpid():
                environment = environment_of(entry)
                if environment and environment.get(b"XDG_STATE_HOME") == mine and alive(entry):
                    found.append(int(entry))
        return found

    def wait_for_no_processes(self, seconds=30):
        until(lambda: not self.processes(), "every process has ended", seconds)

    def leftovers(self):
        """What this home's programs left behind, in words; ends the processes among it."""
        within(20, lambda: not self.processes())
        left = [f"process {pid}: {command_of(pid)}" for pid in self.processes()]

        def killed():
            for pid in self.processes():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return not self.processes()
        until(killed, "what was killed has ended")
        # ThreadSanitizer's start-up makes a file of this name and unlinks it; a program killed
        # between the two leaves it.
        left += [f"temporary file {path}" for path in self.scratch.iterdir()
                 if not (self.build.sanitizer == "thread" and path.name.startswith("tsan.rodata."))]
        left += [f"sanitizer report: {path.read_text(errors='replace')[:4000]}"
                 for path in self.reports.iterdir()]
        return left
