#!/usr/bin/env python3
"""Runs kinds of tests to their ends, looks again at what failed, then judges.

usage: gate.py run KIND... [-- PYTEST-ARGUMENTS...]    for ./dev test
       gate.py all KIND... [-- PYTEST-ARGUMENTS...]    for ./dev test all: debts and all
       gate.py gate KIND...                            for .ci/run: as many of them as fit its minutes
       gate.py stress [--count=N] [--in=KIND] TEST...  for ./dev stress
       gate.py ctest PRESET JOBS                       for a kind's own run: its doctest programs

All is compiled first. Then each kind is a stage: `./dev kind KIND` in a process group of its own, with
a folder build/tests/KIND for what it says (log) and for what its tests tell the gate (see RECORD). A
stage that ends with TESTS_FAILED came to its end, and each test that failed is on record; any other
code but 0 and CANNOT is a failure of the stage itself.

When all have ended, each test that failed is run three times more, alone. One that passes all three
FLAKED, which is a debt and no failure; it is shown, what it said is kept (build/tests/flakes.tsv), and
it is added to tests/flakes.tsv. Some failures get no second look, because one in a hundred is one too
many: see why_final().
"""
import concurrent.futures
import datetime
import fcntl
import itertools
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import xml.etree.ElementTree

import debts
import reach

ROOT = reach.ROOT
FOLDER = ROOT / "build" / "tests"
DEBTS = ROOT / "tests" / "flakes.tsv"

TESTS_FAILED = 9  # what a stage ends with when it came to its end and tests on record failed
CANNOT = 77       # this machine can't have what the stage needs
LOOKS = int(os.environ.get("DTRAIN_TEST_LOOKS") or 3)
MANY = 5          # more failed tests than these in a run are a break, not noise

# Seconds after which a stage hangs, several times what it takes; 1800 for one that is not named.
LIMITS = {"unit": 900, "local": 1800, "asan": 3600, "tsan": 1800, "fuzz": 900, "kubernetes": 3600,
          "slurm-versions": 3600, "lint": 5400}

# What .ci/run always runs; then, of the rest, what the change reaches, in this order, what protects most
# in a minute first, as long as it fits. Two of these are for every change.
ALWAYS = ("unit", "local", "asan-unit", "tsan", "lint")
THEN = ("asan-input", "ssh", "slurm", "cuda", "fuzz", "package", "peers", "kubernetes")
FOR_ALL = ("asan-input", "ssh")
# Minutes that it may take, on two cores: compiled anew, or with a compiler cache that has most.
BUDGET_COLD, BUDGET_WARM = 35, 20
WARM = 240  # Seconds of compiling what always runs, at most, that show such a cache.
# Seconds that a kind takes on two cores: its tests, and compiling without such a cache.
ESTIMATES = {"asan-input": (150, 0), "ssh": (300, 0), "slurm": (180, 60), "cuda": (320, 300),
             "fuzz": (45, 400), "package": (150, 60), "peers": (15, 120), "kubernetes": (1000, 0)}

# What the gate tells a stage, and through it tests/gate_plugin.py and `gate.py ctest`: the folder they
# write to, and, set to anything, that this is the second look.
RECORD, AGAIN = "DTRAIN_TEST_RECORD", "DTRAIN_TEST_AGAIN"

SANITIZER = re.compile(r"\w+Sanitizer|sanitizer report:|:\d+:\d+: runtime error: |libFuzzer")
# A program of ours that ended by itself of SIGILL, SIGABRT, SIGBUS, SIGFPE or SIGSEGV.
CRASH = re.compile(r"bin/dtrain[\w-]*'.* exited with -(4|6|7|8|11)\b|by signal (4|6|7|8|11)\b")
# C++'s words of one that aborts: ours, where a test runs no program of a peer's that says them too.
ABORT = "terminate called"
CRASHES = ("SEGFAULT", "ILLEGAL", "NUMERICAL", "INTERRUPT")  # in ctest's words; an abort is none


# What the tests tell the gate: a line of JSON each, in failed.jsonl, and again.jsonl of a second look.

def tell(folder, **what):
    with open(pathlib.Path(folder, "again.jsonl" if AGAIN in os.environ else "failed.jsonl"), "a",
              encoding="utf-8") as file:
        file.write(json.dumps({"load": round(os.getloadavg()[0], 1), **what}) + "\n")


def told(path):
    entries = []
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            entries.append(json.loads(line))
        except ValueError:  # Of a program that was killed: a failure that nothing can show to be none.
            entries.append({"by": "gate", "test": "a line of its record cannot be read", "when": "",
                            "first": line, "text": ""})
    return entries


def to_look_at(folder, by):
    """The tests that a second look is for; `by` is what runs them, pytest or ctest."""
    return (pathlib.Path(folder) / f"again.{by}").read_text().splitlines()


# The doctest programs, by ctest.

def escaped(name):
    return re.sub(r"([][.^$*+?|()\\])", r"\\\1", name)


def first_of_doctest(text):
    """The first check that failed, as `FILE:LINE: what it found`."""
    lines = [line.strip() for line in text.splitlines()]
    for at, line in enumerate(lines):
        if "ERROR: " in line:
            found = lines[at + 1] if lines[at + 1:] and "values:" in lines[at + 1] else ""
            thrown = next((what for what in lines if what.startswith("what():")), "")
            where = line.replace(f"{ROOT}/", "").removeprefix("../../")
            return " ".join(part for part in (where, found, thrown) if part)
    return lines[-1] if lines else ""


PROCESSORS_A_TEST = 8  # As tests/CMakeLists.txt has it; a case that only waits takes one.


def run_ctest(preset, jobs):
    """Runs the preset's tests and tells the gate which failed. Those that pass are not shown."""
    record = pathlib.Path(os.environ.get(RECORD) or ROOT / "build" / preset)
    again = to_look_at(record, "ctest") if AGAIN in os.environ else []
    if AGAIN in os.environ and not again:
        return 0
    results = record / "ctest.xml"
    results.unlink(missing_ok=True)
    which = ["-j", str(PROCESSORS_A_TEST * int(jobs))]
    if again:
        which = ["-j", "1", "--repeat", f"until-fail:{LOOKS}",
                 "-R", f"^({'|'.join(map(escaped, again))})$"]
    ctest = subprocess.Popen(["ctest", "--preset", preset, "--no-tests=error", *which,
                              "--output-junit", results],
                             cwd=ROOT, stdout=subprocess.PIPE, text=True, errors="replace")
    ends = {}  # "Timeout", "SEGFAULT", …: which the results don't have
    for line in ctest.stdout:
        if last := re.match(r"\s+\d+ - (.*) \((.*)\)$", line.rstrip()):
            ends[last[1]] = last[2]
        if not re.match(r"\s*Start +\d+: |\s*(\d+/\d+ )?Test +#\d+: .* Passed ", line):
            print(line, end="", flush=True)
    code = ctest.wait()
    if not results.exists():
        return code or 1
    failed = False
    for case in xml.etree.ElementTree.parse(results).getroot().iter("testcase"):
        name, status = case.get("name"), case.get("status")
        if status == "run":
            if again:
                for _ in range(LOOKS):
                    tell(record, by="ctest", test=name, passed=True)
        elif status != "disabled":
            failed = True
            text = case.findtext("system-out") or ""
            ending = ends.get(name, status)
            said = (first_of_doctest(text) if "ERROR: " in text
                    else f"{ending} after {float(case.get('time') or 0):.0f} s")
            tell(record, by="ctest", test=name, when="call", first=said, text=text[-20000:],
                 ending=ending)
    return TESTS_FAILED if failed else code


# One program of a stage, to its end or its limit.

def shown_processes():
    """All but the kernel's, as a forest."""
    text = subprocess.run(["ps", "-eo", "pid,ppid,sid,etimes,stat,wchan:20,args", "--forest"],
                          capture_output=True, text=True, errors="replace").stdout
    return [line[:200] for line in text.splitlines()
            if not re.match(r"\s*\d+ +[02] .*\[[^]]*\]$|.*<defunct>$", line)]


def session_of(pid):
    """The processes of a session, as (process id, command line)."""
    text = subprocess.run(["ps", "-s", str(pid), "-o", "pid=,args="], capture_output=True, text=True,
                          errors="replace").stdout
    return [tuple(line.strip().split(None, 1)) for line in text.splitlines() if len(line.split()) > 1]


def pytest_of(folder):
    """The processes that run a test for pytest now."""
    words = [path.read_text().split() for path in folder.glob("running/*.now")]
    return [int(word[0]) for word in words if word]


def signal_all(pids, what):
    for pid in pids:
        try:
            os.kill(pid, what)
        except ProcessLookupError:
            pass


def running_tests(folder, session):
    """What runs now, as (seconds, test): by pytest's own word, and of ctest by the command lines."""
    found = []
    for path in sorted(folder.glob("running/*.now")):
        words = path.read_text().split(None, 2)
        if len(words) == 3:
            found.append((int(time.time()) - int(words[1]), words[2].strip()))
    found += [(0, args.partition("--test-case=")[2]) for _, args in session
              if "/bin/unit-" in args.split(" --test-case=")[0] and "--test-case=" in args]
    return sorted(found, reverse=True)


def explain(folder, pid):
    """What a stage that hangs is at: its tests, all processes, and stacks; gives the tests."""
    session = session_of(pid)
    tests = running_tests(folder, session)
    print("-- tests that run:", *(f"  {seconds:5d} s  {test}" for seconds, test in tests), sep="\n")
    print("-- processes:", *shown_processes(), sep="\n")
    signal_all(pytest_of(folder), signal.SIGUSR1)
    time.sleep(1)
    for path in sorted(folder.glob("running/*.stacks")):
        if text := path.read_text():
            print(f"-- stacks of {path.stem}:", text, sep="\n")
    if shutil.which("gdb"):
        ours = [pid for pid, args in session if re.match(r"\S*/bin/(unit-|dtrain)", args)]
        for pid in ours[:8]:
            print(f"-- stacks of process {pid}:")
            sys.stdout.flush()
            subprocess.run(["timeout", "20", "gdb", "-p", pid, "-batch", "-ex",
                            "thread apply all bt 15"], stderr=subprocess.DEVNULL)
    sys.stdout.flush()
    return [test for seconds, test in tests if seconds > 60] or [test for _, test in tests]


stopped = threading.Event()  # by Ctrl-C, or whatever runs the gate: it ends what runs, and reports.


def end(process):
    """Ends what is left of a process's group."""
    for what in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + 5
        try:
            os.killpg(process.pid, what)
            while time.monotonic() < deadline:
                process.poll()  # One that nobody waited for still counts as one of its group.
                os.killpg(process.pid, 0)
                time.sleep(0.1)
        except (ProcessLookupError, PermissionError):
            return


class Stage:
    def __init__(self, name, arguments, deadline):
        self.name = name
        self.folder = FOLDER / name
        self.arguments = arguments
        self.deadline = deadline
        self.limit = float(os.environ.get("DTRAIN_STAGE_LIMIT") or LIMITS.get(name, 1800))
        self.seconds = 0
        self.code = None
        self.problem = ""  # of the stage itself, whatever its tests say
        self.left_out = ""  # why it was not run
        shutil.rmtree(self.folder, ignore_errors=True)
        (self.folder / "running").mkdir(parents=True)
        self.results = []

    def run(self, *command, log="log", prefix="", limit=None, **env):
        """Runs a command of ./dev; what it says goes to a log, and on as it comes."""
        left = self.deadline - time.monotonic()
        if left < 30 or stopped.is_set():
            self.problem = "ended from outside" if stopped.is_set() else "no time was left for it"
            return
        limit = min(limit or self.limit, left)
        began = time.monotonic()
        with open(self.folder / log, "wb") as out:
            process = subprocess.Popen(
                ["./dev", *command], cwd=ROOT, stdin=subprocess.DEVNULL, stdout=out,
                stderr=subprocess.STDOUT, start_new_session=True,
                env={**os.environ, RECORD: str(self.folder), "PYTHONUNBUFFERED": "1", **env})
        said = open(self.folder / log, encoding="utf-8", errors="replace")
        line = ""
        while True:
            ended = process.poll() is not None  # Asked before its last words are read.
            text = said.read()
            if prefix:
                *lines, line = (line + text).split("\n")
                text = "".join(f"{prefix}{each}\n" for each in lines)
            print(text, end="", flush=True)
            if ended:
                break
            if stopped.is_set():
                self.problem = "ended from outside"
                break
            if time.monotonic() - began > limit:
                print(f"\n== {self.name}: still running after {limit:.0f} s", flush=True)
                tests = explain(self.folder, process.pid)
                self.problem = f"hung in {', '.join(tests) or 'no test: see its log'}"
                break
            time.sleep(0.2)
        said.close()
        print(f"{prefix}{line}\n" if line else "", end="", flush=True)
        if not ended:  # As by Ctrl-C, on which a test's jobs are still ended.
            signal_all(pytest_of(self.folder), signal.SIGINT)
            try:
                process.wait(5 if stopped.is_set() else 60)
            except subprocess.TimeoutExpired:
                pass
        end(process)
        self.code = process.wait()
        self.seconds += time.monotonic() - began

    def build(self, prefix=""):
        self.run("ready", self.name, log="build.log", limit=5400, prefix=prefix)
        if self.code not in (0, CANNOT):
            self.problem = self.problem or "could not be built or set up"

    def test(self, prefix=""):
        if self.code == CANNOT or self.problem:
            return
        print(f"== {self.name}", flush=True)
        self.seconds = 0  # The builds' are a line of their own.
        self.run("kind", self.name, *self.arguments, prefix=prefix)
        self.results = tests_of(told(self.folder / "failed.jsonl"))
        set_up = self.folder / "set_up_failed"
        if set_up.exists() and not self.problem:  # The tests that wanted it say nothing.
            self.problem = f"could not be set up: {set_up.read_text().strip()}"
            self.results = [test for test in self.results if test["whens"] != ["setup"]]
        if not self.problem and self.code not in (0, CANNOT) and (
                self.code != TESTS_FAILED or not self.results):
            self.problem = f"ended with {self.code}"

    def look_again(self):
        """Runs those of its tests that may have a second look, and says of each whether it flaked."""
        tests = [test for test in self.results if not test["final"] and not self.problem]
        for by in ("pytest", "ctest"):
            (self.folder / f"again.{by}").write_text(
                "".join(f"{test['test']}\n" for test in tests if test["by"] == by))
        if not tests:
            return
        print(f"== {self.name} again: {len(tests)} failed, alone, {LOOKS} times", flush=True)
        code, seconds = self.code, self.seconds
        self.run("kind", self.name, *self.arguments, log="again.log",
                 **{AGAIN: "1", "DTRAIN_TESTS_AT_ONCE": "0"})
        self.code, self.seconds = code, seconds
        looks = told(self.folder / "again.jsonl")
        for test in tests:
            its = [look for look in looks if look["test"] == test["test"]]
            # Of a stage that runs its tests several times over, so many of each.
            test["flaked"] = (len(its) > 0 and len(its) % LOOKS == 0 and
                              all(look.get("passed") for look in its))
            if test["flaked"]:
                name = re.sub(r"[^\w.-]+", "_", test["test"])[-120:]
                test["log"] = self.folder / "flaked" / f"{name}.log"
                test["log"].parent.mkdir(exist_ok=True)
                test["log"].write_text(test["text"])

    def verdict(self):
        if self.left_out:
            return f"not run: {self.left_out}"
        failed = sum(not test["flaked"] for test in self.results)
        flaked = len(self.results) - failed
        also = f", {flaked} flaked" if flaked else ""
        if (self.folder / "set_up_again").exists():
            also += ", set up again"
        if self.problem or failed:
            return "FAILED: " + ", ".join([self.problem] * bool(self.problem) +
                                          [f"{failed} failed"] * bool(failed)) + also
        return ("could not be run here, for the reason above" if self.code == CANNOT
                else "passed") + also


def tests_of(told_failures):
    """One entry a test, of all that was told of it."""
    tests = {}
    for failure in told_failures:
        test = tests.setdefault(failure["test"], {**failure, "whens": [], "flaked": False})
        test["whens"].append(failure["when"])
        if len(test["whens"]) > 1:
            test["text"] += "\n" + failure["text"]
    for test in tests.values():
        test["final"] = why_final(test)
        if not test["final"] and reach.is_edited(test["by"], test["test"]):
            test["final"] = "the change adds or edits this test"
    return list(tests.values())


def why_final(test):
    """Why a failed test gets no second look, or ''."""
    text = test["text"]
    if "collect" in test["whens"]:
        return "could not be collected"
    if SANITIZER.search(text):
        return "a sanitizer's report"
    # A test that failed midway never came to tidy up; one that passed should have.
    if "left behind:" in text and test["whens"] == ["teardown"]:
        return "left something behind"
    if test["by"] == "pytest":
        ours = CRASH.search(text) or (ABORT in text and not test.get("peer"))
        return "a program of ours crashed" if ours else ""
    # A test's own thread that lets an exception out aborts the program, the usual culprit.
    test["aborted"] = test.get("ending") == "Subprocess aborted"
    return "its program crashed" if test.get("ending") in CRASHES else ""


# The gate.

def described(tests):
    """Tests of a stage, those with the same words to say together."""
    groups = {}
    for stage, test in tests:
        said = test["first"][:300] + (" (aborted)" if test.get("aborted") else "")
        if test["final"]:
            said += f"\n{'':14}no second look: {test['final']}"
        groups.setdefault((stage.name, said), []).append(
            ("tests/" if test["by"] == "pytest" else "") + test["test"])
    for (name, said), names in groups.items():
        print(*(f"  {name:<11} {each}" for each in names[:5]), sep="\n")
        if names[5:]:
            print(f"{'':14}and {len(names) - 5} more")
        print(f"{'':14}{said}")


def note_flaked(flaked):
    """Adds tests that flaked to this run's list, with their logs, and to the debts."""
    commit = (reach.git("rev-parse", "--short", "HEAD") or "").strip()
    now = datetime.datetime.now().isoformat(timespec="seconds")
    with open(FOLDER / "flakes.tsv", "a", encoding="utf-8") as file:
        for stage, test in flaked:
            print(now, commit, stage.name, test["test"], f"load {test.get('load')}",
                  ("aborted: " if test.get("aborted") else "") + test["first"].replace("\t", " "),
                  test["log"].relative_to(ROOT), sep="\t", file=file)
    debts.add(DEBTS, [(stage.name, test["test"], test["first"]) for stage, test in flaked])


def report(stages, built, complaints=()):
    """The table, what failed and what flaked: the last that the gate says. Gives its exit code."""
    failed = [(stage, test) for stage in stages for test in stage.results if not test["flaked"]]
    flaked = [(stage, test) for stage in stages for test in stage.results if test["flaked"]]
    bad = failed or complaints or [stage for stage in stages if stage.problem]
    for stage in stages:
        if stage.problem and "hung" not in stage.problem:
            for log in ("build.log", "log"):
                path = stage.folder / log
                if path.exists() and (log == "log" or not (stage.folder / "log").exists()):
                    print(f"\n-- {stage.name}: the end of {path.relative_to(ROOT)}:",
                          *path.read_text(errors="replace").splitlines()[-40:], sep="\n")
    print(f"\n  {'builds':<11} {built:5.0f} s")
    for stage in stages:
        print(f"  {stage.name:<11} {stage.seconds:5.0f} s  {stage.verdict()}")
    if failed:
        print("\nFAILED" + (f": no second look for {len(failed)}, more than {MANY}, at once"
                            if len(failed) > MANY else ""))
        described(failed)
    if flaked:
        print(f"\nFLAKED: failed beside others, then passed {LOOKS} times alone. A debt, not a pass.")
        described(flaked)
        note_flaked(flaked)
    if complaints:
        print("", *complaints, sep="\n")
    print(f"\n{'FAILED' if bad else 'passed'}{f', {len(flaked)} flaked' if flaked else ''}",
          flush=True)
    return 1 if bad else 0


def at_once(stages, method, count):
    if count == 1 or len(stages) == 1:
        for stage in stages:
            method(stage)
    else:
        with concurrent.futures.ThreadPoolExecutor(count) as pool:
            list(pool.map(lambda stage: method(stage, prefix=f"{stage.name:<10} | "), stages))


def begin():
    """Takes this checkout for one run; gives the time at which all has to have ended."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    begin.lock = open(FOLDER / "lock", "w")
    fcntl.flock(begin.lock, fcntl.LOCK_EX)  # Two of one checkout would write to the same folders.
    for what in (signal.SIGINT, signal.SIGTERM):
        signal.signal(what, lambda *_: stopped.set())
    return time.monotonic() + 60 * float(os.environ.get("DTRAIN_GATE_MINUTES") or 1e6)


def compile_all(stages):
    """Gives the seconds that it took."""
    began = time.monotonic()
    at_once(stages, Stage.build, max(1, os.cpu_count() // 4))
    return time.monotonic() - began


def look_again(stages):
    if sum(len(stage.results) for stage in stages) <= MANY:
        for stage in stages:
            stage.look_again()


def run(kinds, arguments, is_all=False):
    deadline = begin()
    stages = [Stage(kind, arguments, deadline) for kind in kinds]
    built = compile_all(stages)
    if all(stage.code == CANNOT for stage in stages):
        return CANNOT  # Each has said why.
    # Engines two at a time: they wait more than they compute.
    for engine, group in itertools.groupby(
            stages, key=lambda stage: (ROOT / "tests" / "engines" / stage.name).exists()):
        at_once(list(group), Stage.test, 2 if engine else 1)
    look_again(stages)
    complaints = debts.complaints(DEBTS) if is_all else ()
    code = report(stages, built, complaints)
    if is_all and code == 0 and not arguments:
        flaked = sum(test["flaked"] for stage in stages for test in stage.results)
        commit = reach.note_passed(datetime.date.today(), f"{flaked} flaked")
        print(f"noted in {reach.PASSED}: all passed at {commit}" if commit else
              f"not noted in {reach.PASSED}: files differ from the commit")
    return code


def is_compiled(kind):
    """Whether what takes an engine's tests long to compile is there, or is what the change is about."""
    return (any(reach.kinds_of(file) == (kind,) for file in reach.changed_files() or ()) or
            subprocess.run(["./dev", "compiled", kind], cwd=ROOT).returncode == 0)


def gate(kinds):
    """What .ci/run runs, within its minutes; what does not fit is named, and is no failure."""
    deadline, began = begin(), time.monotonic()
    passed = reach.last_passed()
    print(f"All tests passed last at {passed[1][:10]}, on {passed[0]} ({passed[3]}); "
          f"{len(reach.changed_files())} files differ from it." if passed else
          f"{reach.PASSED} names no commit of this history: the change reaches everything.",
          flush=True)
    os.environ["DTRAIN_LINT_CHANGED"] = "1"
    stages = [Stage(kind, [], deadline) for kind in ALWAYS]
    built = compile_all(stages)
    is_warm = built < WARM
    budget = began + 60 * (BUDGET_WARM if is_warm else BUDGET_COLD)
    at_once(stages, Stage.test, 1)
    rest = [*THEN, *sorted(set(kinds) - {*ALWAYS, *THEN, "asan"})]
    for stage in (Stage(kind, [], deadline) for kind in rest):
        stages.append(stage)
        tests, compiling = ESTIMATES.get(stage.name, (300, 300))
        takes = tests + (0 if is_warm else compiling)
        if stage.name not in FOR_ALL and not reach.reaches(stage.name):
            stage.left_out = "the change does not reach it"
        elif not is_compiled(stage.name):
            stage.left_out = "its programs are not compiled here"
        elif time.monotonic() + takes > budget:
            stage.left_out = f"its {takes / 60:.0f} minutes do not fit any more"
        else:
            built += compile_all([stage])
            stage.test()
    look_again(stages)
    return report(stages, built)


# Stress.

def kind_of(test):
    """Of a test by the name that the gate shows: what runs it."""
    if engine := re.match(r"tests/engines/(\w+)/", test):
        return engine[1]
    return "local" if test.startswith("tests/") else "unit"


def stress(words):
    """Runs tests alone, many times each, while the machine computes and writes all it can."""
    options = dict(word.partition("=")[::2] for word in words if word.startswith("--"))
    tests = [word for word in words if not word.startswith("--")]
    unknown = options.keys() - {"--count", "--in"}
    count = options.get("--count", "20")
    if unknown or not tests or not count.isdigit():
        sys.exit("usage: ./dev stress [--count=20] [--in=KIND] TEST...; a TEST as ./dev test names it: "
                 "tests/FILE.py[::NAME] or unit-PROGRAM:CASE")
    deadline = begin()
    kinds = {}
    for test in tests:
        kinds.setdefault(options.get("--in") or kind_of(test), []).append(test)
    bad = False
    for kind, names in kinds.items():
        stage = Stage(kind, [], deadline)
        stage.build()
        for by in ("pytest", "ctest"):
            (stage.folder / f"again.{by}").write_text("".join(
                name.removeprefix("tests/") + "\n" for name in names
                if (by == "pytest") == name.startswith("tests/")))
        if not stage.problem:
            with tempfile.TemporaryDirectory() as folder:
                load = subprocess.Popen(["stress-ng", "--quiet", "--cpu", str(os.cpu_count()),
                                         "--hdd", "1", "--hdd-bytes", "64m", "--temp-path", folder],
                                        start_new_session=True)
                try:
                    stage.run("kind", kind, log="again.log", limit=1e6,
                              **{AGAIN: "1", "DTRAIN_TESTS_AT_ONCE": "0", "DTRAIN_TEST_LOOKS": count})
                finally:
                    end(load)
                    load.wait()
        looks = told(stage.folder / "again.jsonl")
        found = list(dict.fromkeys(look["test"] for look in looks))
        bad |= bool(stage.problem) or not found
        if not found:
            print(f"\n  {kind}: {stage.problem or 'no such test: ' + ', '.join(names)}")
        for test in found:
            passed = sum(look.get("passed", False) for look in looks if look["test"] == test)
            bad |= passed < int(count)
            print(f"  {passed:4d} of {count} passed  {test}")
            for look in looks:
                if look["test"] == test and not look.get("passed"):
                    print(f"{'':18}{look['first'][:300]}")
    print("FAILED" if bad else "passed")
    return 1 if bad else 0


def main():
    verb, *words = sys.argv[1:]
    if verb == "ctest":
        return run_ctest(*words)
    if verb == "stress":
        return stress(words)
    if verb == "gate":
        return gate(words)
    split = words.index("--") if "--" in words else len(words)
    return run(words[:split], words[split + 1:], is_all=verb == "all")


if __name__ == "__main__":
    sys.exit(main())
