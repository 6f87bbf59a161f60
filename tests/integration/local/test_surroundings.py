"""What a job is started in: signals that the parent ignores, limits, secrets in the environment."""
import contextlib
import json
import os
import pathlib
import signal

import pytest

from harness import EXIT_ENGINE, EXIT_JOB_FAILED, EXIT_USAGE, command_of, until


def ignoring(*signals):
    return lambda: [signal.signal(each, signal.SIG_IGN) for each in signals]


def test_a_parent_that_ignores_the_end_of_children_does_not_keep_a_job_running(home):
    submit = home.start([home.dtrain_path, "submit", "--name=deaf", "--wait", "--", "sh", "-c", "exit 3"],
                        preexec_fn=ignoring(signal.SIGCHLD))
    assert submit.wait(timeout=20 * home.build.slowness) == EXIT_JOB_FAILED
    assert home.get("deaf")["cause"]["exitCode"] == 3


def test_exec_gives_its_commands_code_whatever_the_parent_ignores(home):
    home.submit("beside", "sleep", "600")
    home.running("beside")
    run = home.start([home.dtrain_path, "exec", "beside", "--", "sh", "-c", "exit 5"],
                     preexec_fn=ignoring(signal.SIGCHLD))
    assert run.wait(timeout=20 * home.build.slowness) == 5
    home.dtrain("delete", "beside")


def test_exec_beside_a_program_that_starts_another_in_its_place_is_not_told_that_it_has_ended(home):
    script = home.folder / "again.sh"
    script.write_text('exec sh "$0"\n')
    home.submit("restless", "sh", str(script))
    home.running("restless")
    for _ in range(40):
        home.dtrain("exec", "restless", "--", "true")
    home.dtrain("delete", "restless")


def test_exec_beside_a_job_that_is_being_started_waits_for_it(home):
    runs = home.folder / "runs"
    home.submit("starts", "sh", "-c",
                f'echo $$ >> {runs}; [ "$(wc -l < {runs})" -lt 6 ] || exec sleep 600; exit 1',
                flags=["--max-restarts=9"])

    def pids():
        return runs.read_text().split() if runs.exists() else []

    # The fifth run is followed by a pause of 0.8 s. Until it has ended, exec may still run beside it.
    until(lambda: len(pids()) >= 5 and not os.path.exists(f"/proc/{pids()[4]}"), "the fifth run's end")
    assert home.dtrain("exec", "starts", "--", "sh", "-c", "echo $DTRAIN_RESTART_COUNT").out == "5\n"
    home.dtrain("delete", "starts")


def test_a_timeout_rings_whatever_the_parent_ignores(home):
    home.submit("long", "sleep", "600")
    run = home.start([home.dtrain_path, "wait", "--timeout=100ms", "long"],
                     preexec_fn=ignoring(signal.SIGALRM))
    assert run.wait(timeout=20 * home.build.slowness) != 0
    home.dtrain("delete", "long")


def test_a_limit_of_file_size_costs_lines_and_not_the_job(home):
    home.run(["sh", "-c", 'ulimit -f 4000; exec "$@"', "sh", home.dtrain_path, "submit",
              "--name=small-files", "--", "sh", "-c", "seq 100000; grep SigIgn /proc/$$/status; exit 5"])
    job = home.wait_for_end("small-files", expect=EXIT_JOB_FAILED)
    assert job["cause"]["exitCode"] == 5, job["cause"]
    lines = home.lines("small-files", "-i", "worker-0")
    assert 1000 < len(lines) < 100_000


def test_ranks_cannot_read_the_git_token_where_their_supervisors_keep_the_environment(home):
    look = ("pid=$$; for i in 1 2 3; do tr '\\0' '\\n' < /proc/$pid/environ; "
            "pid=$(awk '/^PPid/ {print $2}' /proc/$pid/status); done")
    home.submit("nosy", "sh", "-c", look, env={"DTRAIN_GIT_TOKEN": "s3cret", "MARK": "is read"})
    home.dtrain("wait", "nosy")
    lines = home.lines("nosy")
    assert lines.count("MARK=is read") == 3
    assert not any("s3cret" in line for line in lines)


# A daemon that leaves its session and forgets the job's environment, all but what says whose it is.
DAEMON = 'env -i XDG_STATE_HOME="$XDG_STATE_HOME" setsid sleep 600 &'


def guard_and_supervisor(home, name):
    owner = json.loads((home.state / f"dtrain/jobs/local/default/{name}/status.json").read_text())
    return owner["guard_pid"], owner["supervisor_pid"]


def pids_of(home, program):
    return [pid for pid in home.processes() if command_of(pid).startswith(program)]


@pytest.mark.parametrize("stopped", [[0], [1], [0, 1]], ids=["guard", "supervisor", "both"])
@pytest.mark.parametrize("groups", ["", "v1", "none"])
def test_delete_ends_a_job_whose_supervisors_do_not_answer(home, stopped, groups):
    home.submit("frozen", "sh", "-c", f"for i in 1 2 3; do {DAEMON} done; exec sleep 601",
                flags=["--workers=3", "--grace-period=100ms"], env={"DTRAIN_CGROUPS": groups})
    home.running("frozen")
    until(lambda: len(pids_of(home, "sleep 600")) == 9, "the daemons are up")
    owners = guard_and_supervisor(home, "frozen")
    for which in stopped:
        os.kill(owners[which], signal.SIGSTOP)
    home.dtrain("delete", "frozen")
    assert home.processes() == []


@pytest.mark.parametrize("groups", ["", "v1"])
def test_delete_ends_what_outlived_both_that_look_after_a_job(home, groups):
    # Where there is no group, it is found by the environment.
    mark = "" if control_groups(groups) else "DTRAIN_JOB_UID=$DTRAIN_JOB_UID"
    home.submit("orphans", "sh", "-c", DAEMON.replace("env -i", f"env -i {mark}") + " exec sleep 601",
                flags=["--workers=2"], env={"DTRAIN_CGROUPS": groups})
    home.running("orphans")
    until(lambda: len(pids_of(home, "sleep 600")) == 2, "the daemons are up")
    for how in signal.SIGSTOP, signal.SIGKILL:  # So that neither sees the other's end.
        for pid in guard_and_supervisor(home, "orphans"):
            os.kill(pid, how)
    until(lambda: not pids_of(home, "sleep 601"), "the ranks died with their supervisor")
    assert len(pids_of(home, "sleep 600")) == 2
    home.dtrain("delete", "orphans")
    assert home.processes() == []


@pytest.mark.parametrize("groups", ["", "v1"])
def test_delete_ends_what_is_left_where_both_that_look_after_a_job_are_killed_meanwhile(home, groups):
    told = home.folder / "told"
    mark = "" if control_groups(groups) else "DTRAIN_JOB_UID=$DTRAIN_JOB_UID"
    home.submit("orphans", "sh", "-c", f"trap 'echo > {told}' TERM; "
                + DAEMON.replace("env -i", f"env -i {mark}") + " while :; do sleep 0.1; done",
                flags=["--grace-period=10m"], env={"DTRAIN_CGROUPS": groups})
    until(lambda: pids_of(home, "sleep 600"), "the daemon is up")
    delete = home.start([home.dtrain_path, "delete", "orphans"])
    until(told.exists, "the rank has been asked to end")
    for how in signal.SIGSTOP, signal.SIGKILL:
        for pid in guard_and_supervisor(home, "orphans"):
            os.kill(pid, how)
    assert delete.wait(timeout=60 * home.build.slowness) == 0
    assert home.processes() == []


def test_delete_names_what_does_not_end(home):
    with group_of_tests("/sys/fs/cgroup/freezer") as (group, inside):
        home.start([home.dtrain_path, "submit", "--name=held", "--", "sh", "-c", f"{DAEMON} exec sleep 601"],
                   env={"DTRAIN_CGROUPS": "v1"}, preexec_fn=inside).wait(60 * home.build.slowness)
        until(lambda: pids_of(home, "sleep 600"), "the daemon is up")
        for how in signal.SIGSTOP, signal.SIGKILL:
            for pid in guard_and_supervisor(home, "held"):
                os.kill(pid, how)
        until(lambda: not pids_of(home, "sleep 601"), "the rank died with its supervisor")
        [daemon] = pids_of(home, "sleep 600")
        (group / "freezer.state").write_text("FROZEN")
        try:
            error = home.dtrain("delete", "held", expect=EXIT_ENGINE).err
        finally:
            (group / "freezer.state").write_text("THAWED")
        assert error == (f"dtrain delete: processes of job default/held survived SIGKILL: "
                         f"{daemon} (sleep); they hang in the kernel (ps -o pid,stat,wchan {daemon})\n")
        home.dtrain("delete", "held")
        assert home.processes() == []


def test_a_job_that_gets_no_control_group_says_why_and_runs(home):
    tree = "/sys/fs/cgroup/unified" if os.path.exists("/sys/fs/cgroup/unified") else "/sys/fs/cgroup"
    with group_of_tests(tree) as (group, inside):
        (group / "cgroup.max.descendants").write_text("0")
        home.start([home.dtrain_path, "submit", "--name=outside", "--", "sleep", "600"],
                   env={"DTRAIN_CGROUPS": "v2"}, preexec_fn=inside).wait(60 * home.build.slowness)
        home.running("outside")
        said = (home.state / "dtrain/jobs/local/default/outside/supervisor.log").read_text()
        assert said.partition(" ")[2] == (f"dtrain: cannot make a control group in {group}: Resource "
                                          "temporarily unavailable; without it, a daemon that unsets "
                                          "DTRAIN_JOB_UID survives if the job's supervisors are killed\n")
        home.dtrain("delete", "outside")
        assert home.processes() == []


@contextlib.contextmanager
def group_of_tests(tree):
    """A control group in that tree, and what moves a process into it."""
    group = pathlib.Path(tree, f"dtrain-test-{os.getpid()}")
    if not os.path.exists(f"{tree}/cgroup.procs"):
        pytest.skip(f"this machine has no control groups in {tree}")
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"this machine gives no control group in {tree}: {error.strerror}")
    try:
        yield group, lambda: (group / "cgroup.procs").write_text("0")
    finally:
        def removed():
            for folder in (*group.glob("dtrain-*"), group):
                with contextlib.suppress(OSError):
                    folder.rmdir()
            return not group.exists()
        until(removed, "the group is empty")


def control_groups(version):
    """True where this machine lets us make one; the test is then of it, else of the way around."""
    roots = {"": ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"]}.get(version, []) + [
        "/sys/fs/cgroup/freezer", "/sys/fs/cgroup/pids", "/sys/fs/cgroup/systemd"]
    return any(os.path.exists(f"{root}/cgroup.procs") and os.access(root, os.W_OK) for root in roots)


def test_a_log_with_a_limit_keeps_its_end_and_says_what_is_gone(home):
    home.submit("chatty", "seq", "300000", flags=["--log-limit=1Mi"])
    home.dtrain("wait", "chatty")
    lines = home.lines("chatty")
    assert "--log-limit" in lines[0] and "dropped" in lines[0]
    assert lines[1:] == [str(number) for number in range(300_001 - len(lines) + 1, 300_001)]
    log = home.state / "dtrain/jobs/local/default/chatty/logs/worker-0.0.log"
    assert 512 * log.stat().st_blocks <= (1 << 20) + 8192
    assert home.lines("chatty", "--tail=2") == ["299999", "300000"]
    home.submit("small", "true", flags=["--log-limit=1"], expect=EXIT_USAGE)


def test_what_a_scaled_away_worker_leaves_running_ends_with_it(home):
    home.submit("shrinks", "sh", "-c", "setsid sleep 600 & exec sleep 601",
                flags=["--workers=2", "--min-workers=1", "--max-workers=2"])
    home.running("shrinks")
    until(lambda: len(pids_of(home, "sleep 600")) == 2, "the daemons are up")
    home.dtrain("scale", "shrinks", "--workers=1")
    until(lambda: len(pids_of(home, "sleep 600")) == 1, "the worker's daemon has ended")
    assert home.status("shrinks") == "RUNNING"
    home.dtrain("delete", "shrinks")


def test_a_gpu_is_not_given_away_before_what_its_last_job_left_there_has_ended(home):
    gpu = {"DTRAIN_LOCAL_GPUS": "1"}
    home.submit("lost", "sh", "-c", "setsid sleep 600 & exec sleep 601", flags=["--gpus=1"], env=gpu)
    home.running("lost")
    until(lambda: pids_of(home, "sleep 600"), "the daemon is up")
    for how in signal.SIGSTOP, signal.SIGKILL:
        for pid in guard_and_supervisor(home, "lost"):
            os.kill(pid, how)
    until(lambda: not pids_of(home, "sleep 601"), "the rank died with its supervisor")
    assert pids_of(home, "sleep 600")
    home.submit("next", "sleep", "602", flags=["--gpus=1"], env=gpu)
    assert not pids_of(home, "sleep 600")
    home.dtrain("delete", "next", "lost")
