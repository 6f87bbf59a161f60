"""Hosts that cannot be used, each told with its reason before anything starts, and what all of them
have to give."""
import contextlib
import getpass
import pathlib
import signal
import threading
import time

import pexpect
import pytest

from harness import BRIEF_LOOKUPS, EXIT_ENGINE, held_ports, until

REFUSED = ("--workers=3",)


def refusal(ssh, *flags, command=("true",)):
    return ssh.submit("refused", *command, flags=[*REFUSED, *flags], expect=EXIT_ENGINE).err


def test_a_clock_that_is_wrong_is_said(ssh, ssh_hosts):
    with ssh_hosts.tool("host2", "date", "echo $(($(/bin/date +%s) - 3600))\n"):
        err = refusal(ssh)
        checked = ssh.dtrain("check", expect=EXIT_ENGINE).out
    for text in err, checked:
        assert "s behind this machine's: set it (NTP)" in text
    assert "1 of 3 hosts cannot be used" in err and "host2  its clock is 3" in err


@pytest.mark.usefixtures("apart")
def test_ways_between_hosts_are_tried_on_the_interface_that_is_named(ssh, ssh_hosts):
    ssh_hosts.on("host1", "ip link add priv0 type veth peer name priv1; ip addr add 10.99.0.1/32 dev priv0;"
                          " ip link set priv0 up")
    ssh_hosts.on("host2", "ip link add priv0 type veth peer name priv1; ip addr add 10.99.0.2/32 dev priv0;"
                          " ip link set priv0 up; ip route add blackhole 10.99.0.1/32")
    try:
        refused = ssh.submit("private", "true", flags=["--workers=2"], expect=EXIT_ENGINE,
                             env={"DTRAIN_SSH_HOSTS": "host1,host2",
                                  "DTRAIN_SSH_INTERFACE": "priv0"})
        assert "host2  cannot connect to host1 (10.99.0.1)" in refused.err
        assert ssh.submit("public", "true", flags=["--workers=2"]).code == 0
        ssh.wait("public")
    finally:
        for host in "host1", "host2":
            ssh_hosts.on(host, "ip link del priv0")
        ssh_hosts.on("host2", "ip route del blackhole 10.99.0.1/32")


@pytest.mark.usefixtures("apart")
@pytest.mark.parametrize("first, second, why", [
    ("127.9.9.1", "127.9.9.2", "has the loopback address 127.9.9.1, which host2 cannot reach"),
    ("10.98.0.1", "10.98.0.1", "has the same address 10.98.0.1 as host2")])
def test_an_address_at_which_another_host_reaches_itself_is_said(ssh, ssh_hosts, first, second, why):
    """As of a host's own name that Debian has at 127.0.1.1, or of a bridge for containers."""
    with contextlib.ExitStack() as undo:
        for host, address in ("host1", first), ("host2", second):
            undo.enter_context(ssh_hosts.mounts(
                host, "ip link add bridge9 type veth peer name other9 && ip link set bridge9 up &&"
                      f" ip addr add {address}/32 dev bridge9 scope global", "ip link del bridge9"))
        env = {"DTRAIN_SSH_HOSTS": "host1,host2", "DTRAIN_SSH_INTERFACE": "bridge9"}
        refused = ssh.submit("apart", "true", flags=["--workers=2"], env=env, expect=EXIT_ENGINE)
        assert f"host1  {why}" in refused.err and "2 of 2 hosts" in refused.err
        ssh.submit("alone", "sh", "-c", "echo $MASTER_ADDR",
                   env={**env, "DTRAIN_SSH_HOSTS": "host1"})
        ssh.wait("alone")
        assert ssh.lines("alone") == [first]


@pytest.mark.usefixtures("apart")
def test_a_disk_that_cannot_be_written_is_said(ssh, ssh_hosts):
    state = f"{ssh_hosts.folder}/home3/.local/state"
    with ssh_hosts.mounts("host3", f"mkdir -p {state} && mount --bind {state} {state} && "
                                   f"mount -o remount,bind,ro {state}", f"umount {state}"):
        assert f"host3  cannot make the private folder {state}/dtrain" in refusal(ssh)
        assert f"cannot write in {state}" in ssh.dtrain("check", expect=EXIT_ENGINE).out


@pytest.mark.usefixtures("apart")
def test_a_disk_that_is_full_is_said(ssh, ssh_hosts):
    state = f"{ssh_hosts.folder}/home3/.local/state"
    with ssh_hosts.mounts(
            "host3", f"mkdir -p {state} && mount -t tmpfs -o size=64k tmpfs {state} && "
            f"{{ dd if=/dev/zero of={state}/fill bs=4096 2>/dev/null; true; }}", f"umount {state}"):
        err = refusal(ssh)
        assert "host3  " in err and f" {state}/dtrain" in err and "full" in err


@pytest.mark.usefixtures("apart")
def test_a_cache_that_cannot_be_written_is_said(ssh, ssh_hosts, ssh_home):
    cache = f"{ssh_hosts.folder}/cache2"
    code = ssh_home.folder / "code"
    code.mkdir()
    (code / "new").write_text(str(ssh_home.folder))
    with ssh_hosts.mounts("host2", f"mkdir -p {cache} && mount --bind {cache} {cache} && "
                                   f"mount -o remount,bind,ro {cache}", f"umount {cache}"):
        err = refusal(ssh, "--sync-mode=local", f"--sync-source={code}")
    assert "host2  cannot receive the program or the code" in err and "Read-only" in err


def test_a_host_without_setsid_is_said(ssh, ssh_hosts, ssh_home):
    tools = ssh_home.folder / "tools"
    tools.mkdir()
    for folder in "/usr/bin", "/bin":
        for tool in pathlib.Path(folder).iterdir():
            if tool.name != "setsid" and not (tools / tool.name).is_symlink():
                (tools / tool.name).symlink_to(tool)
    with ssh_hosts.tool("host1", "sh", f'PATH={tools} exec /bin/sh "$@"\n'):
        assert "host1  lacks the command setsid" in refusal(ssh)


def test_a_wrong_key_is_said_and_nobody_is_asked_for_a_password(ssh, ssh_home, ssh_hosts):
    """Though there is a terminal, and the hosts would take one."""
    key = ssh_home.folder / "wrong"
    ssh_home.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key])
    config = pathlib.Path(ssh_hosts.folder, "ssh_config").read_text()
    own = ssh_home.folder / "config.ssh"
    own.write_text(config.replace(f"IdentityFile {ssh_hosts.folder}/id", f"IdentityFile {key}"))
    ssh_home.script("ssh", f'exec /usr/bin/ssh -F {own} "$@"')
    env = {**ssh_home.env, "PATH": f"{ssh_home.folder}:{ssh_home.env['PATH']}"}
    terminal = pexpect.spawn(ssh_home.dtrain_path, ["submit", *ssh.flags, "--name=wrong",
                                                    "--workers=3", "--", "true"],
                             env=env, cwd=str(ssh_home.folder), timeout=60)
    terminal.expect(pexpect.EOF)
    terminal.close()
    shown = terminal.before.decode()
    assert terminal.exitstatus == EXIT_ENGINE
    assert "3 of 3 hosts cannot be used" in shown and "it accepts none of your keys" in shown
    assert "password:" not in shown


def test_what_a_persons_ssh_config_shares_and_forwards_is_off(ssh, ssh_home, ssh_hosts):
    """With each of these, hosts after the first could not be connected to, or their end not be seen."""
    port, = held_ports(1)
    masters = ssh_home.folder / "masters"
    masters.mkdir()
    config = ssh_home.folder / "config.ssh"
    config.write_text("Host *\n  ControlMaster auto\n  ControlPersist 300\n"
                      f"  ControlPath {masters}/%C\n  ForwardAgent yes\n"
                      f"  LocalForward 127.0.0.1:{port} localhost:1\n  ExitOnForwardFailure yes\n"
                      + pathlib.Path(ssh_hosts.folder, "ssh_config").read_text())
    ssh_home.script("ssh", f'exec /usr/bin/ssh -F {config} "$@"')
    socket = ssh_home.folder / "agent"
    with contextlib.ExitStack() as undo:
        agent = undo.enter_context(ssh_home.start(["ssh-agent", "-D", "-a", socket]))
        undo.callback(agent.terminate)
        until(socket.exists, "the key agent listens")
        env = {"PATH": f"{ssh_home.folder}:{ssh_home.env['PATH']}", "SSH_AUTH_SOCK": str(socket)}
        ssh.submit("own", "sh", "-c", "echo agent ${SSH_AUTH_SOCK:-none}; exec sleep 600",
                   flags=["--workers=4", "--grace-period=1s"], env=env)
        for worker in range(4):
            until(lambda: ssh.lines("own", "-i", f"worker-{worker}") == ["agent none"],
                  f"worker-{worker} has no key agent")
        shown = ssh.dtrain("exec", "own", "--", "sh", "-c", "echo ${SSH_AUTH_SOCK:-none}", env=env)
        assert shown.out == "none\n"
        ssh.dtrain("check", env=env)
        assert list(masters.iterdir()) == []
        ssh.dtrain("delete", "own")


def test_check_shows_the_free_slots_and_gpus_of_each_host_by_pdsh_and_without(ssh, ssh_home,
                                                                             ssh_hosts):
    marker = ssh_home.folder / "by-pdsh"
    ssh_home.script("pdsh", f'touch {marker}\nexec /usr/bin/pdsh "$@"')
    with_pdsh = {"PATH": f"{ssh_home.folder}:{ssh_home.env['PATH']}"}
    without = {"PATH": f"{ssh_hosts.folder}/bin"}
    ssh.submit("holds", "sleep", "600", flags=["--gpus=1", "--grace-period=1s"],
               env={"DTRAIN_SSH_HOSTS": "host2"})
    hosts = {"DTRAIN_SSH_HOSTS": "host1,host2:4,host3"}

    def shown(env):
        checked = ssh.dtrain("check", env={**hosts, **env}).out
        top = ssh_home.dtrain("top", "node", "-o", "json", env={**hosts, **env}).json()
        job = ssh_home.dtrain("top", "job", "holds", env={**hosts, **env}).out
        assert "worker-0" in job
        return checked.splitlines()[-4:-1], [(node["name"], node["status"]) for node in top]

    first, nodes = shown(without)
    assert not marker.exists()
    assert nodes == [("host1", "Ready"), ("host2", "Ready"), ("host3", "Ready")]
    if ssh_hosts.apart:
        assert "10.77.0.12: 3 of 4 slots free, 3 of 4 GPUs free" in first[1]
        assert "10.77.0.13: 0 of your ranks there, 4 of 4 GPUs free" in first[2]
    again, nodes_again = shown(with_pdsh)
    assert marker.exists() and again == first and nodes_again == nodes
    unknown = {**BRIEF_LOOKUPS, "DTRAIN_SSH_HOSTS": "host1,no-such-host.invalid"}
    for env in without, with_pdsh:
        lines = ssh.dtrain("check", env={**unknown, **env}, expect=EXIT_ENGINE).out.splitlines()
        assert "no-such-host.invalid" in lines[-2] and "resolve" in lines[-2]
        assert "GPUs free" in lines[-3]


@pytest.mark.parametrize("words", [("submit", "--name=many", "--workers=64", "--", "true"), ("check",)],
                         ids=["submit", "check"])
def test_no_more_than_32_hosts_are_connected_to_at_a_time(ssh, ssh_home, words):
    came, gate = ssh_home.folder / "came", ssh_home.folder / "gate"
    came.mkdir()
    ssh_home.script("ssh", f"/bin/echo >{came}/$$; until [ -e {gate} ]; do /bin/sleep 0.5; done\n"
                           "echo 'ssh: closed' >&2; exit 255")
    env = {"PATH": str(ssh_home.folder), "DTRAIN_SSH_HOSTS": "host[1-64]"}  # And no pdsh.
    verb, *rest = words
    with ssh_home.start([ssh_home.dtrain_path, verb, *ssh.flags, *rest], env=env) as running:
        until(lambda: len(list(came.iterdir())) >= 32, "the first have connected")
        time.sleep(1)
        assert len(list(came.iterdir())) == 32
        gate.touch()
        out, err = running.communicate(timeout=60)
    assert running.returncode == EXIT_ENGINE and (out + err).count(b"ssh: closed") == 64
    assert len(list(came.iterdir())) == 64


def test_a_host_that_turns_some_away_while_many_come_in_is_tried_again(ssh, ssh_home, ssh_hosts):
    """As sshd does (MaxStartups): two of three here."""
    code = ssh_home.folder / "code"
    code.mkdir()
    (code / "new").write_text(str(ssh_home.folder))
    came = ssh_home.folder / "came"
    ssh_home.script("ssh", f"""echo >>{came}
        if [ $(($(wc -l <{came}) % 3)) = 0 ]; then
          exec {ssh_hosts.folder}/bin/ssh "$@"
        fi
        echo 'kex_exchange_identification: Connection closed by remote host' >&2
        exit 255""")
    env = {"PATH": f"{ssh_home.folder}:{ssh_home.env['PATH']}", "DTRAIN_SSH_HOSTS": "host1"}
    ssh.submit("busy", "cat", "new", env=env,
               flags=["--sync-mode=local", f"--sync-source={code}"])
    ssh.wait("busy")
    assert ssh.lines("busy") == [str(ssh_home.folder)]
    assert len(came.read_text()) == 3  # Its code came the same way.
    user = getpass.getuser()
    without_pdsh = {**env, "DTRAIN_SSH_HOSTS": f"{user}@host1"}  # It would read the @ itself.
    for count, asking in enumerate((env, without_pdsh), 2):
        assert "GPUs free" in ssh.dtrain("check", env=asking).out.splitlines()[-2]
        assert len(came.read_text()) == 3 * count
    ssh_home.script("ssh", "echo 'ssh_exchange_identification: read: Connection reset by peer' >&2; "
                           "exit 255")
    refused = ssh.submit("closed", "true", env=env, expect=EXIT_ENGINE)
    assert "host1  ssh_exchange_identification: read: Connection reset by peer" in refused.err


def test_ctrl_c_while_hosts_are_asked_starts_nothing(ssh, ssh_home, ssh_hosts):
    came, gate, ran = (ssh_home.folder / name for name in ("came", "gate", "ran"))
    ssh_home.script("ssh", f"touch {came}; until [ -e {gate} ]; do sleep 0.1; done\n"
                           f'exec {ssh_hosts.folder}/bin/ssh "$@"')
    env = {"PATH": f"{ssh_home.folder}:{ssh_home.env['PATH']}"}
    with ssh_home.start([ssh_home.dtrain_path, "submit", *ssh.flags, "--name=taken-back", "--",
                         "touch", ran], env=env) as running:
        until(came.exists, "a host is asked")
        running.send_signal(signal.SIGINT)
        running.communicate(timeout=30)
    assert running.returncode != 0
    gate.touch()
    until(lambda: not ssh_home.processes(), "all have ended")
    assert ssh.dtrain("list", "-o", "json").json() == [] and not ran.exists()


def test_a_job_that_submit_did_not_live_to_hear_of_is_taken_back(ssh, ssh_home, ssh_hosts):
    """It is stopped while hosts are asked, and interrupted once the job is there."""
    came, gate, ran = (ssh_home.folder / name for name in ("came", "gate", "ran"))
    ssh_home.script("ssh", f"touch {came}; until [ -e {gate} ]; do sleep 0.1; done\n"
                           f'exec {ssh_hosts.folder}/bin/ssh "$@"')
    env = {"PATH": f"{ssh_home.folder}:{ssh_home.env['PATH']}"}
    with ssh_home.start([ssh_home.dtrain_path, "submit", *ssh.flags, "--name=unheard", "--",
                         "touch", ran], env=env) as running:
        until(came.exists, "a host is asked")
        running.send_signal(signal.SIGSTOP)
        gate.touch()
        until(lambda: ssh.dtrain("list", "-o", "json").json(), "the job is there")
        running.send_signal(signal.SIGINT)
        running.send_signal(signal.SIGCONT)
        running.communicate(timeout=60)
    assert running.returncode == -signal.SIGINT
    until(lambda: not ssh_home.processes(), "all have ended")
    assert ssh.dtrain("list", "-o", "json").json() == [] and not ran.exists()


def test_ctrl_c_at_any_moment_of_submit_leaves_nothing(ssh, ssh_home, ssh_hosts):
    """Every 50 ms, until submit has ended before."""
    for step in range(200):
        with ssh_home.start([ssh_home.dtrain_path, "submit", *ssh.flags, f"--name=moment-{step}",
                             "--workers=3", "--", "sleep", "600"]) as running:
            time.sleep(0.05 * step)
            running.send_signal(signal.SIGINT)
            running.communicate(timeout=60)
        if running.returncode == 0:
            break
        until(lambda: not ssh_home.processes(), f"all have ended that Ctrl-C after {step} steps met")
        assert ssh.dtrain("list", "-o", "json").json() == []
        for host in ssh_hosts.names:
            until(lambda: ssh_hosts.of_jobs(host) == "", f"nothing of the job is left on {host}")
    assert step > 1 and running.returncode == 0
    ssh.dtrain("delete", f"moment-{step}")


@pytest.mark.usefixtures("apart")
def test_submissions_at_once_take_no_gpu_twice(ssh):
    """Six that want two each of four: as many as fit are there, and the others are refused."""
    results = []

    def submit(name):
        results.append(ssh.submit(name, "sh", "-c", "echo $CUDA_VISIBLE_DEVICES; exec sleep 600",
                                  flags=["--gpus=2", "--grace-period=1s"], expect=None,
                                  env={"DTRAIN_SSH_HOSTS": "host3"}))

    threads = [threading.Thread(target=submit, args=(f"race-{i}",)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(result.code for result in results) == [0, 0] + [EXIT_ENGINE] * 4
    assert all("free GPUs" in result.err for result in results if result.code)
    jobs = ssh.dtrain("list", "-o", "json").json()
    devices = []
    for job in jobs:
        lines = ssh.dtrain("exec", job["name"], "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES").out
        devices += lines.strip().split(",")
    assert sorted(devices) == ["0", "1", "2", "3"]
