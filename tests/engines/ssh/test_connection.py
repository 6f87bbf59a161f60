"""One connection a host: what comes over it, and what becomes of a job where it is cut."""
import contextlib
import os
import pathlib
import signal
import time

import pytest

from harness import EXIT_ENGINE, EXIT_JOB_FAILED, EXIT_NOT_FOUND, EXIT_USAGE, until


def connections(home):
    """The ssh that jobs of this home have: host and process."""
    found = []
    for pid in home.processes():
        try:
            words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if words[0].endswith(b"ssh") and b"--" in words:
            found.append((words[words.index(b"--") + 1].decode(), pid))
    return sorted(found)


def test_all_ranks_of_a_host_share_its_connection(ssh, ssh_home):
    ssh.submit("shared", "sh", "-c", "echo rank $RANK; exec sleep 600",
               flags=["--workers=9", "--grace-period=1s"])
    for rank in range(9):
        until(lambda: ssh.lines("shared", "-i", f"worker-{rank}") == [f"rank {rank}"],
              f"rank {rank} is heard")
    assert [host for host, _ in connections(ssh_home)] == ["host1", "host2", "host3"]


def test_a_jobs_use_is_asked_over_its_connections_and_what_it_left_over_one_a_host(ssh, ssh_home,
                                                                                  ssh_hosts):
    came = ssh_home.folder / "came"
    came.touch()
    ssh.submit("asked", "sleep", "600", flags=["--workers=8", "--grace-period=1s"],
               env={"DTRAIN_SSH_HOSTS": "host[1-2]"})
    ssh_home.script("ssh", f'echo >>{came}\nexec {ssh_hosts.folder}/bin/ssh "$@"')
    env = {"PATH": f"{ssh_home.folder}:{ssh_home.env['PATH']}"}
    until(lambda: ssh_home.dtrain("top", "job", "asked", env=env).out.count("worker-") == 8, "all run")
    assert came.read_text() == ""
    ssh.dtrain("delete", "asked", env=env)
    assert len(came.read_text()) == 2


@pytest.mark.parametrize("code", [165, 255])
def test_a_rank_may_exit_with_any_code(ssh, code):
    ssh.submit("code", "sh", "-c", f"exit {code}")
    ssh.wait("code", expect=EXIT_JOB_FAILED)
    assert ssh.get("code")["cause"]["exitCode"] == code


def test_a_process_with_a_cleared_environment_ends_with_its_rank(ssh, ssh_hosts):
    ssh.submit("cleared", "sh", "-c", "env -i sleep 617 & env -i setsid sleep 618 & sleep 1; echo; exit 4")
    ssh.wait("cleared", expect=EXIT_JOB_FAILED)
    assert ssh.get("cleared")["cause"]["exitCode"] == 4
    assert "sleep 61" not in ssh_hosts.on("host1", "ps -eo args")


def kept(hosts, host):
    return hosts.on(host, "cat ~/.local/state/dtrain/hosts/*/*/code/log 2>/dev/null; true").split()


def test_what_a_job_wrote_stays_from_run_to_run_and_until_delete(ssh, ssh_home, ssh_hosts):
    code = ssh_home.folder / "code"
    code.mkdir()
    (code / "train.sh").write_text("echo $DTRAIN_RESTART_COUNT >>log; echo $(cat log)\n"
                                   "sleep 1; [ $DTRAIN_RESTART_COUNT = 1 ] || exit 3\n")
    flags = ["--workers=3", "--max-restarts=1", "--sync-mode=local", f"--sync-source={code}"]
    ssh.submit("writes", "sh", "train.sh", flags=flags)
    ssh.wait("writes")
    own = ssh_hosts.names if ssh_hosts.apart else []
    for worker in range(3):
        assert ssh.lines("writes", "-i", f"worker-{worker}")[-1] == "0 1"
    assert [kept(ssh_hosts, host) for host in own] == [["0", "1"]] * len(own)
    mode = ssh_hosts.on("host1", "stat -c %a ~/.local/state/dtrain/hosts/* | sort -u").strip()
    assert mode == "700"
    ssh.dtrain("delete", "writes")
    for host in ssh_hosts.names:
        assert kept(ssh_hosts, host) == [] and ssh_hosts.of_jobs(host) == ""


def test_delete_says_what_is_left_on_a_host_that_cannot_be_reached(ssh, ssh_home, ssh_hosts):
    code = ssh_home.folder / "code"
    code.mkdir()
    (code / "new").write_text(str(ssh_home.folder))
    ssh.submit("left", "cp", "new", "log", flags=["--workers=3", "--sync-mode=local",
                                                  f"--sync-source={code}"])
    ssh.wait("left")
    ssh_home.script("ssh", f"""case "$*" in
        *" host2 "*) echo 'ssh: connect to host host2 port 22: No route to host' >&2; exit 255 ;;
        esac
        exec {ssh_hosts.folder}/bin/ssh "$@" """)
    env = {"PATH": f"{ssh_home.folder}:{ssh_home.env['PATH']}"}
    said = ssh.dtrain("delete", "left", env=env, expect=EXIT_ENGINE).err
    assert "host2  ssh: connect to host host2 port 22: No route to host" in said
    assert "host1" not in said and "dtrain/hosts/" in said
    ssh.dtrain("get", "left", expect=EXIT_NOT_FOUND)
    if ssh_hosts.apart:
        assert [bool(kept(ssh_hosts, host)) for host in ssh_hosts.names] == [False, True, False]
    ssh_hosts.on("host2", "rm -rf ~/.local/state/dtrain/hosts/*")


def test_a_host_timeout_that_is_none_is_refused(ssh):
    for text in "soon", "1s":
        refused = ssh.submit("timeout", "true", flags=[f"--host-timeout={text}"], expect=EXIT_USAGE)
        assert f"--host-timeout={text}" in refused.err and refused.err.count("\n") == 1


def test_a_worker_whose_host_is_lost_is_started_on_one_that_has_a_free_slot(ssh, ssh_home):
    ssh.submit("moved", "sh", "-c", "echo $DTRAIN_RESTART_COUNT $CUDA_VISIBLE_DEVICES; exec sleep 600",
               flags=["--workers=3", "--min-workers=2", "--max-restarts=1", "--gpus=1",
                      "--grace-period=1s"], env={"DTRAIN_SSH_HOSTS": "host1:1,host2:1,host3:2"})
    until(lambda: len(ssh.lines("moved", "-i", "worker-1")) == 1, "it runs")
    os.kill(dict(connections(ssh_home))["host2"], signal.SIGKILL)
    until(lambda: ssh.get("moved")["instances"][1]["node"] == "host3", "it is on another host")
    until(lambda: "1 1" in ssh.lines("moved", "-i", "worker-1"), "it runs again, on a GPU of its own")
    job = ssh.get("moved")
    assert [each["node"] for each in job["instances"]] == ["host1", "host3", "host3"]
    assert all(each["status"] == "Running" for each in job["instances"])
    assert "worker-1 on host2 was lost" in job["reason"] and "restarted" in job["reason"]


def test_a_job_ends_though_the_host_that_a_lost_worker_is_to_move_to_hangs(ssh, ssh_home, ssh_hosts):
    gate, asked = ssh_home.folder / "gate", ssh_home.folder / "asked"
    code = ssh_home.folder / "code"
    code.mkdir()
    (code / "train.sh").write_text(f"until [ -e {gate} ]; do sleep 0.1; done\n")
    ssh.submit("hangs", "sh", "train.sh", env={"DTRAIN_SSH_HOSTS": "host1:1,host2:1,host3:1"},
               flags=["--workers=2", "--min-workers=1", "--max-workers=3", "--max-restarts=1",
                      "--grace-period=1s", "--sync-mode=local", f"--sync-source={code}"])
    until(lambda: ssh.get("hangs")["status"] == "RUNNING", "it runs")
    with ssh_hosts.tool("host3", "tar", f"touch {asked}; exec sleep 600\n"):
        os.kill(dict(connections(ssh_home))["host2"], signal.SIGKILL)
        until(asked.exists, "host3 is asked, and has 10 minutes to answer")
        gate.touch()
        ssh.wait("hangs")
    assert [each["status"] for each in ssh.get("hangs")["instances"]] == ["Succeeded", "Failed"]


def restarts_while_host3_hangs(ssh, ssh_home, ssh_hosts, stack, name):
    """A job that ended by itself, whose host3 does not come to an end with what it is asked then."""
    gate, code = ssh_home.folder / "gate", ssh_home.folder / "code"
    asked = ssh_home.folder / "asked"
    code.mkdir()
    (code / "train.sh").write_text(f"until [ -e {gate} ]; do sleep 0.1; done; rm -f {gate}; exit 3\n")
    ssh.submit(name, "sh", "train.sh", flags=[
        "--workers=3", "--min-workers=1", "--max-workers=3", "--max-restarts=9", "--gpus=1",
        "--grace-period=600s", "--sync-mode=local", f"--sync-source={code}"])
    until(lambda: ssh.get(name)["status"] == "RUNNING", "it runs")
    stack.enter_context(ssh_hosts.tool("host3", "cksum", f"touch {asked}; exec sleep 600\n"))
    for _, pid in connections(ssh_home)[:2]:
        os.kill(pid, signal.SIGKILL)
    until(lambda: ssh_hosts.count("host1") + ssh_hosts.count("host2") == 0, "two hosts are lost")
    gate.touch()
    until(asked.exists, "host3 is asked again")


@pytest.mark.usefixtures("apart")
def test_a_restart_that_waits_for_a_host_keeps_no_scale_waiting(ssh, ssh_home, ssh_hosts):
    with contextlib.ExitStack() as stack:
        restarts_while_host3_hangs(ssh, ssh_home, ssh_hosts, stack, "scaled")
        ssh.dtrain("scale", "scaled", "--workers=2")
        until(lambda: [each["node"] for each in ssh.get("scaled")["instances"]
                       if each["status"] == "Running"] == ["host1", "host2"], "two run")
        ssh.dtrain("delete", "scaled")


@pytest.mark.usefixtures("apart")
def test_a_restart_that_waits_for_a_host_keeps_no_delete_waiting(ssh, ssh_home, ssh_hosts):
    with contextlib.ExitStack() as stack:
        restarts_while_host3_hangs(ssh, ssh_home, ssh_hosts, stack, "deleted")
        ssh.dtrain("suspend", "deleted")
        assert ssh.get("deleted")["status"] == "SUSPENDED"
        ssh.dtrain("delete", "deleted")
    for host in ssh_hosts.names:
        until(lambda: ssh_hosts.of_jobs(host) == "", f"nothing of the job is left on {host}")


@pytest.mark.usefixtures("apart")
def test_a_network_that_is_down_for_a_while_ends_no_rank(ssh, ssh_hosts):
    ssh.submit("patient", "sh", "-c", "i=0; while sleep 0.2; do echo $((i += 1)); done",
               flags=["--workers=3", "--grace-period=1s", "--host-timeout=60s"])

    def lines():
        return ssh.lines("patient", "-i", "worker-1")

    until(lambda: len(lines()) > 5, "it prints")
    with ssh_hosts.cut("host2"):
        until(lambda: "host2 does not answer" in ssh.get("patient").get("reason", ""),
              "the host is suspect")
        time.sleep(22)
        assert ssh.get("patient")["status"] == "RUNNING"
    before = len(lines())
    until(lambda: len(lines()) > before + 20, "it is heard again", 120)
    job = ssh.get("patient")
    assert job["status"] == "RUNNING" and "does not answer" not in job.get("reason", "")
    numbers = [line for line in lines() if not line.startswith("dtrain: ")]
    assert numbers == [str(number) for number in range(1, len(numbers) + 1)]
    said = [line for line in lines() if line.startswith("dtrain: ")]
    assert len(said) == 2 and "does not answer" in said[0] and "answers again" in said[1]
