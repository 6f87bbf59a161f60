"""Bad input: one line that names what is wrong, the right exit code, and nothing left behind."""
import os

import pytest

import harness
from harness import EXIT_ENGINE, EXIT_JOB_FAILED, EXIT_ERROR, EXIT_USAGE, Home, fill, until

NAME_LIMIT = 63


def job_file(text):
    return lambda home: ["submit", "-f", write(home, "job.yaml", text)]


def write(home, name, text):
    path = home.folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


# What is typed, and what the line must name.
USAGE = {
    "no workers": (["submit", "--workers=0", "--", "true"], ["--workers", "0"]),
    "negative workers": (["submit", "--workers=-1", "--", "true"], ["--workers"]),
    "a billion workers": (["submit", "--workers=1000000000", "--", "true"], ["--workers"]),
    "more workers than an integer": (["submit", "--workers=99999999999999999999", "--", "true"],
                                     ["--workers"]),
    "half a worker": (["submit", "--workers=1.5", "--", "true"], ["--workers"]),
    "a word of workers": (["submit", "--workers=many", "--", "true"], ["--workers", "many"]),
    "no value": (["submit", "--workers"], ["--workers"]),
    "an empty value": (["submit", "--workers=", "--", "true"], ["--workers"]),
    "negative GPUs": (["submit", "--gpus=-1", "--", "true"], ["--gpus"]),
    "negative restarts": (["submit", "--max-restarts=-1", "--", "true"], ["--max-restarts"]),
    "negative servers": (["submit", "tfjob", "--ps=-1", "--", "true"], ["--ps"]),
    "a role twice": (["submit", "tfjob", "--ps=1", "--role-sequence=PS,Worker,PS", "--", "true"],
                     ["--role-sequence=PS,Worker,PS", "at most once"]),
    "memory in a unit that is none": (["submit", "-b", "kubernetes", "--image=x",
                                       "--memory=10Gigs", "--", "true"], ["10Gigs", "16Gi"]),
    "CPUs below none": (["submit", "-b", "kubernetes", "--image=x", "--cpu=-4", "--", "true"],
                        ["--cpu=-4"]),
    "a variable of 1 MB": (job_file(f"command: ['true']\nenv: ['BIG={'x' * (1 << 20)}']\n"),
                           ["--env=BIG", "131071"]),
    "a queue where none is": (["submit", "--queue=q", "--", "true"], ["--queue", "no queues"]),
    "a mistyped flag": (["submit", "--wrokers=2", "--", "true"], ["--wrokers", "--workers"]),
    "an unknown flag": (["submit", "--zzz", "--", "true"], ["--zzz"]),
    "a mistyped command": (["delte", "x"], ["delte", "delete"]),
    "a program for a command": (["torchrun", "x.py"], ["dtrain submit -- torchrun"]),
    "a script for a type": (["submit", "train.py"], ["dtrain submit -- python train.py"]),
    "two variables by one flag": (["submit", "-e", "A=1", "B=2", "--", "true"], ["-e B=2"]),
    "Slurm's number of tasks": (["submit", "-n", "4", "--", "true"], ["--workers=4"]),
    "Slurm's number of nodes": (["submit", "-N", "2", "--", "true"], ["--workers"]),
    "a number of workers for scale": (["scale", "a", "4"], ["dtrain scale a --workers=4"]),
    "an unknown backend": (["submit", "--backend=cloud", "--", "true"], ["cloud", "local"]),
    "hosts for an engine that has none": (["submit", "--hosts=h1,h2", "--", "true"],
                                          ["--hosts", "--backend=ssh"]),
    "an unknown output form": (["list", "-o", "xml"], ["xml", "json"]),
    "an empty name": (["submit", "--name=", "--", "true"], ["--name"]),
    "a name in capitals": (["submit", "--name=Job", "--", "true"], ["Job"]),
    "a name with a dash at its end": (["submit", "--name=job-", "--", "true"], ["job-"]),
    "a name with a dot": (["submit", "--name=a.b", "--", "true"], ["a.b"]),
    "a name with a slash": (["submit", "--name=../../etc", "--", "true"], ["../../etc"]),
    "a name too long": (["submit", f"--name={'a' * (NAME_LIMIT + 1)}", "--", "true"],
                        [str(NAME_LIMIT)]),
    "a name with a newline": (["submit", "--name=a\nb", "--", "true"], ["a\\nb"]),
    "a name of bad bytes": (["submit", b"--name=\xff", "--", "true"], ["name"]),
    "a namespace that is no label": (["submit", "-n", "Team A", "--", "true"], ["Team A"]),
    "a variable without a value": (["submit", "--env=NOVALUE", "--", "true"], ["NOVALUE"]),
    "a variable without a name": (["submit", "--env==x", "--", "true"], ["=x"]),
    "a label without a value": (["submit", "--label=team", "--", "true"], ["--label=team", "KEY=VALUE"]),
    "a label of bad bytes": (["submit", "-l", b"a=\xff", "--", "true"], ["--label=a=\\xff", "UTF-8"]),
    "a working folder that is not there": (
        ["submit", "--working-dir=/no/such", "--", "true"], ["/no/such"]),
    "a job file that is not there": (["submit", "-f", "/no/such.yaml"], ["/no/such.yaml"]),
    "a job file that is a folder": (["submit", "-f", "/"], ["/"]),
    "no job's name": (["logs"], ["NAME"]),
    "a tail of words": (["logs", "x", "--tail=all"], ["--tail"]),
    "a since of words": (["logs", "x", "--since=yesterday"], ["--since"]),
    "a timeout of words": (["wait", "x", "--timeout=soon"], ["--timeout"]),
    "unreadable YAML": (job_file("name: x\nworkers: [1\ncommand: y\n"), ["job.yaml", ":3"]),
    "YAML with tabs": (job_file("name: x\n\tworkers: 2\n"), ["job.yaml", ":2"]),
    "an unknown key": (job_file("name: x\nwrokers: 2\n"), ["job.yaml", ":2", "wrokers", "workers"]),
    "a key twice": (job_file("name: x\nname: y\n"), ["job.yaml", ":2", "name"]),
    "a value of the wrong type": (job_file("name: x\nworkers: two\n"), ["job.yaml", ":2", "workers"]),
    "a list where a word belongs": (job_file("name: [x]\n"), ["job.yaml", ":1", "name"]),
    "a word where a list belongs": (job_file("command: run me\n"), ["job.yaml", ":1", "command"]),
    "a list as job file": (job_file("- a\n- b\n"), ["job.yaml"]),
    "an empty job file": (job_file(""), ["job.yaml"]),
    "two documents": (job_file("name: x\n---\nname: y\n"), ["job.yaml"]),
    "an anchor that eats itself": (job_file("a: &a [*a]\n"), ["job.yaml"]),
    "a job file of bad bytes": (job_file(b"name: \xff\xfe\n"), ["job.yaml"]),
    "workers of zero in a file": (job_file("workers: 0\ncommand: ['true']\n"), ["workers", "0"]),
}


@pytest.mark.parametrize("case", USAGE)
def test_bad_usage_is_one_line_and_exit_2(home, case):
    words, named = USAGE[case]
    words = words(home) if callable(words) else words
    result = home.dtrain(*words, expect=EXIT_USAGE)
    assert result.out == ""
    assert result.err.count("\n") == 1, result
    assert all(word in result.err for word in named), result
    assert result.err.startswith("dtrain")
    assert not home.state.exists()


def test_a_deep_job_file_is_refused_not_a_crash(home):
    path = write(home, "job.yaml", "[" * 100_000)
    result = home.dtrain("submit", "-f", path, expect=EXIT_USAGE)
    assert result.err.count("\n") == 1


def test_an_endless_job_file_is_refused_and_not_read_to_its_end(home):
    if home.build.sanitizer:
        pytest.skip("a sanitizer needs more address space than the limit that guards this machine")
    result = home.run(["sh", "-c", 'ulimit -v 1000000; exec "$@"', "sh", home.dtrain_path,
                       "submit", "-f", "/dev/zero"], expect=EXIT_USAGE)
    assert result.err.count("\n") == 1


def test_a_broken_settings_file_is_named_with_its_line(home):
    folder = home.folder / "config" / "dtrain"
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text("profiles:\n  a: [\n")
    result = home.dtrain("list", expect=EXIT_USAGE)
    assert "config.yaml:" in result.err and result.err.count("\n") == 1


@pytest.mark.parametrize("make", [
    lambda path: path.write_text("mine"),
    lambda path: path.symlink_to("/tmp"),
    lambda path: (path.mkdir(), path.chmod(0o777)),
], ids=["a file", "a link", "open to all"])
def test_a_state_folder_that_is_not_ours_is_refused(home, make):
    home.state.mkdir(mode=0o700)
    make(home.state / "dtrain")
    result = home.submit("x", "true", expect=None)
    assert result.code in (EXIT_ERROR, EXIT_USAGE, EXIT_ENGINE)
    assert str(home.state / "dtrain") in result.err and result.err.count("\n") == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a folder to somebody else")
def test_a_state_folder_of_somebody_elses_is_refused(home):
    folder = home.state / "dtrain"
    folder.mkdir(parents=True, mode=0o700)
    os.chown(folder, 12345, 12345)
    result = home.submit("x", "true", expect=None)
    assert result.code in (EXIT_ERROR, EXIT_USAGE, EXIT_ENGINE)
    assert str(folder) in result.err and result.err.count("\n") == 1


def test_a_state_folder_with_strange_things_in_it_is_listed_all_the_same(home):
    home.submit("fine", "true")
    home.dtrain("wait", "fine")
    jobs = home.state / "dtrain" / "jobs" / "local" / "default"
    (jobs / "a-file").write_text("x")
    (jobs / "empty").mkdir()
    (jobs / "half").mkdir()
    (jobs / "half" / "status.json").write_text('{"name": "ha')
    (jobs / "Not A Label").mkdir()
    result = home.dtrain("list")
    assert "fine" in result.out
    home.dtrain("get", "half", "-o", "json", expect=None)
    home.dtrain("delete", "half", expect=None)
    assert "fine" in home.dtrain("list").out


@pytest.fixture
def small_disk(home, build):
    """A home on a disk of 2 MiB."""
    with harness.small_disk(home.folder / "disk") as disk:
        try:
            yield Home(disk, build)
        finally:
            home.wait_for_no_processes()


def test_a_full_disk_refuses_a_job_whole(small_disk):
    small_disk.submit("before", "true")
    small_disk.dtrain("wait", "before")
    fill(small_disk.folder)
    result = small_disk.submit("during", "true", expect=None)
    assert result.code in (EXIT_ERROR, EXIT_ENGINE)
    assert "space" in result.err and result.err.count("\n") == 1
    assert small_disk.dtrain("list", "-o", "name").out.split() == [
        small_disk.dtrain("list", "-o", "name").out.strip()]
    (small_disk.folder / "filler").unlink()
    small_disk.submit("during", "true")
    small_disk.dtrain("wait", "during")
    assert small_disk.leftovers() == []


def test_a_disk_that_fills_up_under_a_job_costs_lines_and_not_the_job(small_disk):
    small_disk.submit("chatty", "sh", "-c",
                      "until [ -e /proc/$PPID/cwd/nothing ] || [ -e go ]; do sleep 0.05; done; "
                      "seq 1000000; exit 5")
    small_disk.running("chatty")
    (small_disk.folder / "go").touch()
    small_disk.dtrain("wait", "chatty", expect=None)
    job = small_disk.get("chatty")
    assert job["status"] == "FAILED" and job["cause"]["exitCode"] == 5
    numbers = [int(line) for line in small_disk.lines("chatty", "-i", "worker-0")
               if line.isdigit()]
    assert 5_000 < len(numbers) < 1_000_000
    assert numbers == sorted(set(numbers)), "whole lines, in order"
    small_disk.dtrain("delete", "chatty")
    assert small_disk.leftovers() == []


def test_a_full_disk_at_a_restart_hides_neither_the_cause_nor_its_logs(small_disk):
    small_disk.submit("again", "sh", "-c",
                      "echo no such layer >&2; logs=$(dirname $DTRAIN_HOSTFILE)/logs; "
                      "until grep -q layer $logs/worker-0.0.log; do sleep 0.02; done; "
                      "cat /dev/zero > filler 2>/dev/null; exit 5",
                      flags=["--max-restarts=3"])
    job = small_disk.wait_for_end("again", expect=EXIT_JOB_FAILED)
    cause = job["cause"]
    assert cause["exitCode"] == 5 and cause["lastStderr"] == ["no such layer"], cause
    assert "not restarted" in cause["message"] and "space" in cause["message"]
    assert small_disk.lines("again") == ["no such layer"]
    small_disk.dtrain("delete", "again")
    assert small_disk.leftovers() == []


def test_a_folder_that_cannot_be_written_is_named(home):
    if os.geteuid() == 0:
        result = home.dtrain("submit", "--", "true", env={"XDG_STATE_HOME": "/proc/nothing"},
                             expect=None)
    else:
        home.state.mkdir(mode=0o500)
        result = home.dtrain("submit", "--", "true", expect=None)
    assert result.code in (EXIT_ERROR, EXIT_ENGINE) and result.err.count("\n") == 1
    until(lambda: not home.processes(), "nothing runs")
