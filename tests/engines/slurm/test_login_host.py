"""From a laptop: Slurm's commands are run over a real ssh, on a host that has them."""
import os
import pathlib
import pwd
import shutil
import signal
import socket
import subprocess

import pexpect
import pytest

from harness import EXIT_ENGINE, EXIT_NOT_FOUND, command_of, held_ports, until


@pytest.fixture
def laptop(slurm_home):
    """A home with no Slurm of its own; that of `slurm_home` is on the other side of ssh."""
    folder = slurm_home.folder / "login"
    folder.mkdir()
    for name in "host", "user":
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name],
                       check=True)
    (folder / "authorized").write_text((folder / "user.pub").read_text())
    there = {name: slurm_home.env[name] for name in ("XDG_STATE_HOME", "SLURM_CONF", "PATH")}
    [port] = held_ports(1)
    user = pwd.getpwuid(os.getuid()).pw_name
    (folder / "sshd").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host\nPidFile none\n"
        f"AuthorizedKeysFile {folder}/authorized\nStrictModes no\nUsePAM no\nPermitRootLogin yes\n"
        "SetEnv " + " ".join(f"{name}={value}" for name, value in there.items()) + "\n")
    (folder / "ssh").write_text(
        f"Host login1\n  HostName 127.0.0.1\n  Port {port}\n  User {user}\n"
        f"  IdentityFile {folder}/user\n  UserKnownHostsFile {folder}/known\n"
        "  StrictHostKeyChecking accept-new\n  LogLevel ERROR\n")
    tools = folder / "bin"
    tools.mkdir()
    (tools / "ssh").write_text(f'#!/bin/sh\nexec /usr/bin/ssh -F {folder}/ssh "$@"\n')
    (tools / "ssh").chmod(0o755)
    for name in ("env", "sh", "cat", "rm", "git", "tar", "gzip"):
        (tools / name).symlink_to(shutil.which(name))
    if os.geteuid() == 0:
        pathlib.Path("/run/sshd").mkdir(exist_ok=True)
    with open(folder / "log", "wb") as log:
        server = subprocess.Popen(["/usr/sbin/sshd", "-D", "-e", "-f", folder / "sshd"],
                                  stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        def answers():
            assert server.poll() is None, (folder / "log").read_text()
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", port)) == 0
        until(answers, "sshd listens")
        kept = dict(slurm_home.env)
        slurm_home.env.update(PATH=str(tools), DTRAIN_LOGIN_HOST="login1")
        slurm_home.env.pop("SLURM_CONF")
        yield slurm_home
        slurm_home.env.clear()
        slurm_home.env.update(kept)
    finally:
        server.terminate()
        server.wait()


def test_a_job_is_submitted_followed_and_deleted_over_ssh(laptop):
    code = laptop.folder / "code"
    code.mkdir()
    (code / "run").write_text("#!/bin/sh\necho \"$1\" of $RANK: $TOKEN; sleep 2; echo last\n")
    (code / "run").chmod(0o755)
    (laptop.folder / "env").write_text("TOKEN=it's secret\n")
    laptop.dtrain("submit", "--name=far", "--workers=2", "--sync-mode=local",
                  f"--sync-source={code}", "--env-file=env", "--", "./run", "two  'words'")
    assert laptop.lines("far", "-f", "-i", "worker-1") == ["two  'words' of 1: it's secret", "last"]
    laptop.wait_for_end("far", 0)
    assert [job["name"] for job in laptop.dtrain("list", "-o", "json").json()] == ["far"]
    laptop.dtrain("delete", "far")
    assert laptop.dtrain("list", "-o", "name").out == ""


def test_a_shell_beside_a_rank_has_a_terminal_over_ssh(laptop):
    laptop.submit("far", "sleep", "600", flags=["--env=GREETING=hello"])
    laptop.running("far")
    assert laptop.run([laptop.dtrain_path, "exec", "far", "--", "sh", "-c", "cat; exit 5"],
                      stdin="typed", expect=5).out == "typed"
    with pexpect.spawn(laptop.dtrain_path, ["attach", "far"], env=laptop.env, encoding="utf-8",
                       timeout=60) as terminal:
        terminal.sendline("echo $GREETING there; test -t 0 && echo on a \"\"terminal; exit 7")
        terminal.expect("hello there")
        terminal.expect("on a terminal")
        terminal.expect(pexpect.EOF)
        terminal.wait()
    assert terminal.exitstatus == 7
    laptop.dtrain("delete", "far")


def test_a_login_host_that_lets_nobody_in_is_named(laptop):
    (laptop.folder / "login/authorized").write_text("")
    result = laptop.dtrain("list", expect=EXIT_ENGINE)
    assert "--login-host=login1" in result.err and "Permission denied" in result.err
    assert result.err.count("\n") == 1


def connections(laptop):
    return (laptop.folder / "login/log").read_text().count("Accepted publickey")


def test_all_that_is_asked_goes_over_one_connection(laptop):
    laptop.submit("far", "sh", "-c", "echo first; sleep 4; echo last")
    before = connections(laptop)
    assert laptop.lines("far", "-f") == ["first", "last"]
    assert connections(laptop) <= before + 1
    laptop.dtrain("delete", "far")


def test_a_link_that_breaks_ends_logs_with_an_error(laptop):
    laptop.submit("far", "sh", "-c", "echo first; exec sleep 600")
    laptop.running("far")
    with laptop.start([laptop.dtrain_path, "logs", "-f", "far"], text=True) as follows:
        assert follows.stdout.readline() == "first\n"
        for pid in laptop.processes():
            if command_of(pid).startswith(("ssh ", "ssh:", "/usr/bin/ssh ")):
                os.kill(pid, signal.SIGKILL)
        assert follows.wait(60) == EXIT_ENGINE
        assert follows.stderr.read().count("\n") == 1
    laptop.dtrain("delete", "far")


def test_what_a_job_wrote_comes_over_ssh(laptop):
    laptop.submit("far", "sh", "-c", "mkdir out; echo result >'out/a file'; head -c 3000000 /dev/zero >out/large")
    laptop.wait_for_end("far", 0)
    here = laptop.folder / "here"
    here.mkdir()
    laptop.dtrain("cp", "far:out", here)
    assert (here / "out/a file").read_text() == "result\n"
    assert (here / "out/large").stat().st_size == 3000000
    result = laptop.dtrain("cp", "far:none", here, expect=EXIT_NOT_FOUND)
    assert "login1" in result.err and result.err.count("\n") == 1
    assert os.listdir(here) == ["out"]
