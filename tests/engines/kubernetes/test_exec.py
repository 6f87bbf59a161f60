"""Commands beside the ranks of a job, over a WebSocket."""
import os
import signal
import subprocess
import termios
import time

import pexpect
import pytest

from engines.kubernetes.fixtures import BUSYBOX, TRAINER, until
from harness import EXIT_ENGINE, EXIT_NOT_FOUND

SLEEP = ("sh", "-c", "exec sleep 600")


@pytest.fixture
def job(kube):
    kube.submit("beside", *SLEEP, flags=[BUSYBOX, "--workers=2", "--env=MARK=a 'b' $c"])
    kube.running("beside", 60)
    return "beside"


@pytest.fixture
def terminal(kube, job):
    started = []

    def start(*words):
        child = pexpect.spawn(kube.dtrain_path, [str(word) for word in words], env=kube.env,
                              cwd=str(kube.folder), dimensions=(24, 80), encoding="utf-8",
                              timeout=30,  # Under nohup it would ignore SIGHUP.
                              preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL))
        started.append(child)
        return child
    yield start
    for child in started:
        child.close(force=True)


def test_exec_has_the_ranks_variables_and_its_exit_code(kube, job):
    result = kube.dtrain("exec", job, "--", "sh", "-c",
                         "echo $RANK of $WORLD_SIZE; echo \"$MARK\"; echo wrong >&2; exit 7",
                         expect=7)
    assert (result.out, result.err) == ("0 of 2\na 'b' $c\n", "wrong\n")
    assert kube.dtrain("exec", job, "-i", "worker-1", "--", "sh", "-c", "echo $RANK").out == "1\n"
    assert kube.dtrain("exec", job, "--", "sh", "-c", "kill -9 $$", expect=137).out == ""
    kube.dtrain("exec", job, "--", "no-such-program", expect=127)


def test_input_and_output_arrive_byte_exact_and_the_input_ends(kube, job):
    data = os.urandom(3 << 20)
    process = kube.start([kube.dtrain_path, "exec", job, "--", "cat"], stdin=subprocess.PIPE)
    out, err = process.communicate(data, timeout=120)
    assert (process.returncode, err) == (0, b"") and out == data


def test_arguments_arrive_byte_exact(kube, job):
    odd = "a \"b\" $c `d` &?=%41 é\n+"
    assert kube.dtrain("exec", job, "--", "printf", "%s|", odd, "").out == f"{odd}||"


def test_a_reader_that_goes_away_ends_exec(kube, job):
    process = kube.start(["sh", "-c", f"{kube.dtrain_path} exec {job} -- yes | head -n1"])
    out, err = process.communicate(timeout=60)
    assert (out, err) == (b"y\n", b"")
    until(lambda: "yes" not in kube.dtrain("exec", job, "--", "ps").out, "it has ended there")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_command_there_too(kube, job, number):
    process = kube.start([kube.dtrain_path, "exec", job, "--", "sh", "-c",
                          "sleep 777 & echo begun; exec sleep 778"], text=True)
    assert process.stdout.readline() == "begun\n"
    process.send_signal(number)
    assert process.wait(timeout=30) == 128 + number
    until(lambda: "sleep 77" not in kube.dtrain("exec", job, "--", "ps").out, "both are gone")
    assert "sleep 600" in kube.dtrain("exec", job, "--", "ps").out
    process.communicate()


def test_attach_is_a_terminal_with_its_size_and_leaves_ours_as_it_was(kube, job, terminal):
    child = terminal("attach", job)
    before = termios.tcgetattr(child.child_fd)
    child.sendline("stty size; echo rank $RANK")
    child.expect("24 80")
    child.expect("rank 0")
    child.setwinsize(40, 100)
    child.sendline("stty size")
    child.expect("40 100")
    child.sendline("sh -c 'trap \"echo interrupted; exit\" INT; echo be''gun; "
                   "while :; do sleep 0.1; done'")
    child.expect("begun")
    child.sendintr()  # For the remote command.
    child.expect("interrupted")
    child.sendline("exit 3")
    child.expect(pexpect.EOF)
    assert termios.tcgetattr(child.child_fd) == before
    child.close()
    assert child.exitstatus == 3


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_puts_the_terminal_back(kube, job, terminal, number):
    child = terminal("attach", job)
    before = termios.tcgetattr(child.child_fd)
    child.expect("[$#] ")
    assert termios.tcgetattr(child.child_fd) != before
    os.kill(child.pid, number)
    child.expect(pexpect.EOF)
    assert termios.tcgetattr(child.child_fd) == before
    child.close()
    assert child.exitstatus == 128 + number


def test_exec_needs_the_right_that_the_docs_name(kube, cluster, job):
    config = kube.folder / "beside.kubeconfig"
    config.write_text(open(cluster.kubeconfig).read().replace(
        "users: [{name: u, user: {", "users: [{name: u, user: {as: beside, "))
    env = {"KUBECONFIG": str(config)}

    def allow(name, *words):
        cluster.kubectl("create", "role", name, *words)
        cluster.kubectl("create", "rolebinding", name, f"--role={name}", "--user=beside")
    try:
        allow("beside-look", "--verb=get,list", "--resource=jobs.batch,pods")
        result = kube.dtrain("exec", job, "--", "echo", "hi", env=env, expect=EXIT_ENGINE)
        assert "pods/exec" in result.err and "(Forbidden)" in result.err
        assert result.err.count("\n") == 1
        allow("beside-exec", "--verb=get,create", "--resource=pods/exec")
        until(lambda: kube.dtrain("exec", job, "--", "echo", "hi", env=env,
                                  expect=None).out == "hi\n", "it is allowed")
    finally:
        cluster.kubectl("delete", "--ignore-not-found", "role,rolebinding", "beside-look",
                        "beside-exec")


def test_exec_where_nothing_runs_is_one_line(kube, job):
    kube.submit("waits", "true", flags=["--image=localhost/none:1", "--image-pull-policy=Never"])
    result = kube.dtrain("exec", "waits", "--", "true", expect=EXIT_ENGINE)
    assert "worker-0 of job waits is not running" in result.err and result.err.count("\n") == 1
    until(lambda: "not running (worker-0: cannot pull the image: ErrImageNeverPull" in
          kube.dtrain("exec", "waits", "--", "true", expect=EXIT_ENGINE).err, "why")
    result = kube.dtrain("exec", job, "-i", "worker-7", "--", "true", expect=EXIT_NOT_FOUND)
    assert "no instance 'worker-7'" in result.err and result.err.count("\n") == 1
    kube.dtrain("exec", "nobody", "--", "true", expect=EXIT_NOT_FOUND)


def test_a_pod_that_is_deleted_ends_exec_with_one_line(kube, cluster, job):
    process = kube.start([kube.dtrain_path, "exec", job, "--", "sleep", "600"], text=True)
    until(lambda: "sleep 600" in kube.dtrain("exec", job, "--", "ps").out.split("exec", 1)[-1],
          "it runs")
    time.sleep(0.5)
    kube.dtrain("delete", job)
    _, err = process.communicate(timeout=60)
    assert process.returncode in (137, 143, EXIT_ENGINE) and err.count("\n") <= 1


def test_exec_beside_a_launcher_and_its_workers(kube, trainer_image):
    kube.dtrain("submit", "mpijob", "--name=mpiexec", "--workers=1", "--env=MARK=mine", TRAINER,
                "--", "sleep", "600")
    kube.running("mpiexec", 60)
    assert kube.dtrain("exec", "mpiexec", "--", "sh", "-c",
                       "echo $MARK $DTRAIN_HOSTFILE").out == "mine /etc/dtrain/hostfile\n"
    until(lambda: kube.dtrain("exec", "mpiexec", "-i", "worker-0", "--", "sh", "-c", "echo $MARK",
                              expect=None).out == "mine\n", "the worker's variables")
