"""The local supervisor: gangs end together, nothing survives them, and the terminal is not needed."""
import json
import os
import random
import signal
import time

import pexpect
import pytest

from harness import EXIT_JOB_FAILED, EXIT_NOT_FOUND, PYTHON, alive, command_of, soak, until

# Ranks that take no notice of TERM.
STUBBORN = "trap '' TERM HUP INT; while :; do sleep 1; done"


def supervisors(home, ranks):
    """The processes of a job that are not its ranks nor started by them, oldest first."""
    def parents(pid):
        while pid > 1:
            yield pid
            try:
                pid = int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1])
            except OSError:
                return
    return sorted(pid for pid in home.processes() if not set(parents(pid)) & set(ranks))


@pytest.mark.parametrize("command, code", [
    ("exec sleep 600", {"exitCode": 9}), (STUBBORN, {"exitCode": 9})])
def test_one_dead_rank_ends_the_gang(home, command, code):
    go = home.folder / "go"
    home.submit("gang", "sh", "-c",
                f"[ $RANK = 2 ] || {{ {command}; }}; until [ -e {go} ]; do sleep 0.01; done; exit 9",
                flags=["--workers=3"])
    home.running("gang")
    go.touch()
    job = home.wait_for_end("gang", expect=EXIT_JOB_FAILED)
    assert job["cause"]["rank"] == 2
    assert {key: job["cause"].get(key) for key in code} == code
    home.wait_for_no_processes()


@pytest.mark.parametrize("rank", range(3))
@pytest.mark.parametrize("phase", ["starting", "running", "ending"])
def test_a_rank_killed_at_any_phase_is_the_cause(home, rank, phase):
    """starting: before the others said anything; ending: when a peer has already succeeded."""
    text = {"starting": "exec sleep 600",
            "running": "echo at work; exec sleep 600",
            "ending": f"[ $RANK != {(rank + 1) % 3} ] || exit 0; exec sleep 600"}[phase]
    home.submit("phase", "sh", "-c", f"echo $$ > $RANK.part; mv $RANK.part $RANK.pid; {text}",
                flags=["--workers=3"])
    victim = int(home.wait_for_file(f"{rank}.pid"))
    if phase == "running":
        until(lambda: len(home.lines("phase")) == 3, "every rank is at work")
    if phase == "ending":
        until(lambda: "Succeeded" in {i["status"] for i in home.get("phase")["instances"]},
              "one rank has ended")
    os.kill(victim, signal.SIGKILL)
    job = home.wait_for_end("phase", expect=EXIT_JOB_FAILED)
    assert (job["cause"]["rank"], job["cause"]["signal"]) == (rank, "SIGKILL")
    home.wait_for_no_processes()


def test_the_first_rank_to_fail_is_the_cause_not_those_it_took_along(home):
    home.submit("first", "sh", "-c",
                "[ $RANK = 1 ] && { echo the real fault >&2; exit 5; }; "
                "trap 'echo taken along >&2; exit 6' TERM; while :; do sleep 0.05; done",
                flags=["--workers=4"])
    cause = home.wait_for_end("first", expect=EXIT_JOB_FAILED)["cause"]
    assert (cause["rank"], cause["exitCode"]) == (1, 5)
    assert cause["lastStderr"] == ["the real fault"]


def test_only_the_last_twenty_lines_of_stderr_are_kept(home):
    home.submit("long", "sh", "-c", "seq 1000 >&2; exit 1")
    cause = home.wait_for_end("long", expect=EXIT_JOB_FAILED)["cause"]
    assert cause["lastStderr"] == [str(number) for number in range(981, 1001)]


@pytest.mark.parametrize("which", [0, -1], ids=["guard", "supervisor"])
def test_a_supervisor_killed_leaves_no_process_and_get_says_so(home, which):
    home.submit("orphans", "sh", "-c", "sleep 601 & exec sleep 600", flags=["--workers=3"])
    ranks = home.pids("orphans")
    watching = supervisors(home, ranks)
    assert watching, "no supervisor found"
    os.kill(watching[which], signal.SIGKILL)
    home.wait_for_no_processes()
    job = home.get("orphans")
    assert job["status"] == "FAILED"
    assert "supervisor" in job["cause"]["message"] or "guard" in job["cause"]["message"]
    home.dtrain("wait", "orphans", expect=EXIT_JOB_FAILED)
    home.dtrain("delete", "orphans")
    home.dtrain("get", "orphans", expect=EXIT_NOT_FOUND)


def test_every_watching_process_killed_at_once_is_not_running_forever(home):
    """Nobody is left to end the ranks but the kernel and the next command."""
    home.submit("abandoned", "sh", "-c", STUBBORN, flags=["--workers=2"])
    for pid in supervisors(home, home.pids("abandoned")):
        os.kill(pid, signal.SIGKILL)
    until(lambda: home.status("abandoned") == "FAILED", "get says so")
    home.dtrain("delete", "abandoned")
    home.wait_for_no_processes()


def kill_while_it_starts(home, name, is_time):
    """Kills the oldest process of a job, but for the command's own, once it is time."""
    submit = home.start([home.dtrain_path, "submit", f"--name={name}", "--workers=8", "--",
                         "sleep", "600"])

    def others():
        return [pid for pid in home.processes() if pid != submit.pid]
    until(lambda: others() and is_time(), "it is time")
    try:
        os.kill(min(others()), signal.SIGKILL)
    except (ProcessLookupError, ValueError):  # By then it, or all, had ended.
        pass
    submit.communicate(timeout=30 * home.build.slowness)
    until(lambda: home.dtrain("get", name, "-o", "json", expect=None).code == EXIT_NOT_FOUND
          or home.status(name) != "PENDING", "no job is pending forever")
    home.dtrain("delete", name, expect=None)
    home.wait_for_no_processes()


@pytest.mark.parametrize("moment", ["first seen", "recorded", "its first rank runs"])
def test_a_supervisor_killed_while_it_starts_leaves_nothing(home, moment):
    record = home.state / "dtrain/jobs/local/default/early/status.json"
    kill_while_it_starts(home, "early", {
        "first seen": lambda: True, "recorded": record.exists,
        "its first rank runs": lambda: any(command_of(pid) == "sleep 600"
                                           for pid in home.processes())}[moment])


@soak
def test_a_supervisor_killed_at_any_moment_while_it_starts_leaves_nothing(home):
    for attempt in range(50):
        moment = time.monotonic() + random.Random(attempt).uniform(0, 0.1)
        kill_while_it_starts(home, f"early-{attempt}", lambda: time.monotonic() >= moment)


def test_delete_ends_daemons_that_left_their_session(home):
    daemon = ("import os, time\n"
              "if os.fork(): os._exit(0)\n"
              "os.setsid()\n"
              "if os.fork(): os._exit(0)\n"
              "os.chdir('/'); time.sleep(600)\n")
    home.submit("daemons", "sh", "-c", f'{PYTHON} -c "{daemon}"; touch up.$RANK; exec sleep 600',
                flags=["--workers=2"])
    for rank in range(2):
        home.wait_for_file(f"up.{rank}")
    # The processes between a rank and its daemon may still be about to end.
    until(lambda: len([pid for pid in home.processes() if "os.setsid" in command_of(pid)]) == 2,
          "only the daemons are left")
    home.dtrain("delete", "daemons")
    home.wait_for_no_processes()


def test_daemons_end_with_a_job_that_succeeds(home):
    home.submit("tidy", "sh", "-c", "setsid sleep 600 & exit 0")
    home.dtrain("wait", "tidy")
    home.wait_for_no_processes()


def test_delete_when_it_returns_has_ended_everything(home):
    home.submit("stubborn", "sh", "-c", STUBBORN, flags=["--workers=3"])
    home.pids("stubborn")
    home.dtrain("delete", "stubborn")
    assert home.processes() == []


def test_delete_tells_a_process_from_a_later_one_of_the_same_id(home):
    """A record whose ids now belong to somebody else: nobody else is ended."""
    home.submit("reused", "sleep", "600")
    for pid in supervisors(home, home.pids("reused")):
        os.kill(pid, signal.SIGKILL)
    home.wait_for_no_processes()
    bystander = home.start(["sleep", "600"], env={"XDG_STATE_HOME": "/nowhere"})
    try:
        rewrite_pids(home, "reused", bystander.pid)
        home.dtrain("get", "reused")
        home.dtrain("delete", "reused")
        assert alive(bystander.pid)
    finally:
        bystander.kill()
        bystander.communicate()


def rewrite_pids(home, name, pid):
    """Makes every process id in a job's record that of another process."""
    def rewritten(value):
        if isinstance(value, dict):
            return {key: pid if key == "pid" else rewritten(item) for key, item in value.items()}
        if isinstance(value, list):
            return [rewritten(item) for item in value]
        return value
    path = home.state / "dtrain" / "jobs" / "local" / "default" / name / "status.json"
    path.write_text(json.dumps(rewritten(json.loads(path.read_text()))))


def test_the_job_survives_its_terminal(home):
    terminal = pexpect.spawn("/bin/bash", ["--norc", "-i"], env={**home.env, "PS1": "ready> "},
                             cwd=str(home.folder), timeout=20 * home.build.slowness)
    terminal.expect_exact("ready> ")
    terminal.sendline(f"{home.dtrain_path} submit --name=survivor -- sh -c "
                      "'until [ -e go ]; do sleep 0.05; done; echo alive'")
    terminal.expect_exact("ready> ")
    home.running("survivor")
    terminal.close(force=True)  # HUP to the shell's jobs, and the terminal gone
    (home.folder / "go").touch()
    assert home.wait_for_end("survivor", expect=0)["status"] == "SUCCEEDED"
    assert home.lines("survivor", "-i", "worker-0") == ["alive"]


def test_submit_wait_interrupted_leaves_the_job_alone(home):
    terminal = pexpect.spawn(home.dtrain_path, ["submit", "--name=goes-on", "--wait", "--", "sh",
                                                "-c", "echo up; exec sleep 600"],
                             env=home.env, cwd=str(home.folder),
                             timeout=20 * home.build.slowness)
    terminal.expect("up")
    terminal.sendintr()
    terminal.expect(pexpect.EOF)
    terminal.close()
    assert terminal.exitstatus == 130
    assert home.status("goes-on") == "RUNNING"
    home.dtrain("delete", "goes-on")


def test_two_hundred_jobs_at_once(home):
    jobs = 200 if not home.build.sanitizer else 20
    submits = [home.start([home.dtrain_path, "submit", f"--name=many-{number}", "--", "sh", "-c",
                           "until [ -e go ]; do sleep 1; done"]) for number in range(jobs)]
    for submit in submits:
        _, err = submit.communicate(timeout=120 * home.build.slowness)
        assert submit.returncode == 0, err
    listed = home.dtrain("list", "-o", "json").json()
    assert len(listed["items"] if isinstance(listed, dict) else listed) == jobs
    (home.folder / "go").touch()
    for number in range(jobs):
        home.dtrain("wait", f"many-{number}")


def test_a_rank_sees_neither_our_files_nor_a_terminal(home):
    """Only stdin, stdout and stderr are open in a rank, and stdin is at its end."""
    home.submit("clean", "sh", "-c", "ls /proc/self/fd | tr '\\n' ' '; wc -c")
    home.dtrain("wait", "clean")
    listed = home.lines("clean", "-i", "worker-0")[0].split()
    assert listed[:3] == ["0", "1", "2"] and len(listed) == 5  # ls's own, then wc's 0


def test_a_rank_starts_with_default_signal_handling(home):
    # As a shell's background job has them.
    submit = home.start([home.dtrain_path, "submit", "--name=signals", "--", "grep", "-E",
                         "^Sig(Blk|Ign)", "/proc/self/status"],
                        preexec_fn=lambda: [signal.signal(ignored, signal.SIG_IGN) for ignored in
                                            (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)])
    assert submit.wait(timeout=60 * home.build.slowness) == 0
    home.dtrain("wait", "signals")
    assert all(int(line.split()[1], 16) == 0 for line in home.lines("signals", "-i", "worker-0"))
