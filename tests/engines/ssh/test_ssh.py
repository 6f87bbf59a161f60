"""What only jobs on other hosts do."""
import contextlib
import json
import os
import pathlib
import signal
import subprocess
import urllib.request

import pexpect
import pytest

import idx_data
from harness import BRIEF_LOOKUPS, EXIT_ENGINE, EXIT_JOB_FAILED, EXIT_USAGE, until

HERE = pathlib.Path(__file__).parent

SLEEP = ("sh", "-c", "setsid sleep 600 & exec sleep 600")  # And a daemon.


def record(home, name):
    return home.state / "dtrain/jobs/ssh/default" / name


def running(ssh, name, *flags):
    ssh.submit(name, *SLEEP, flags=["--workers=3", "--grace-period=1s", *flags])
    until(lambda: ssh.get(name)["status"] == "RUNNING", "the job runs")


def nothing_left(hosts, names=None):
    for host in names or hosts.names:
        until(lambda: hosts.of_jobs(host) == "", f"nothing of a job is left on {host}", 60)


def ssh_processes(home):
    """The connections of this home's jobs, by host."""
    found = {}
    for pid in home.processes():
        try:
            words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if words[0].endswith(b"ssh") and b"--" in words:
            found[words[words.index(b"--") + 1].decode()] = pid
    return found


def test_ranks_run_on_the_hosts_and_reach_each_other(ssh, ssh_hosts):
    ssh.submit("where", "sh", "-c", "hostname; echo $MASTER_ADDR $LOCAL_RANK/$LOCAL_WORLD_SIZE "
               "$NODE_RANK; cat $DTRAIN_HOSTFILE", flags=["--workers=4"])
    ssh.wait("where")
    assert [instance["node"] for instance in ssh.get("where")["instances"]] == [
        "host1", "host1", "host2", "host3"]
    first = ssh.lines("where", "-i", "worker-0")
    last = ssh.lines("where", "-i", "worker-3")
    address = first[1].split()[0]
    assert first[1:3] == [f"{address} 0/2 0", f"{address} slots=2"]
    assert last[1] == f"{address} 0/1 2"
    assert ssh.lines("where", "-i", "worker-1")[1] == f"{address} 1/2 0"
    nothing_left(ssh_hosts)


def test_the_bundled_trainer_trains_over_the_hosts(ssh, ssh_home, ssh_hosts):
    data = idx_data.write(ssh_home.folder / "data")
    ssh.submit("mlp", f"--data={data}", "--epochs=1", flags=["--workers=3"])
    ssh.wait("mlp")
    lines = ssh.lines("mlp", "-i", "worker-0")
    network = "TCP" if ssh_hosts.apart else "shared memory"
    assert any("network" in line and network in line for line in lines), lines
    assert any("held-out accuracy" in line for line in lines), lines


def test_slots_of_a_host_file_are_filled(ssh, ssh_home):
    hosts = ssh_home.folder / "hosts"
    hosts.write_text("host2 slots=2  # two here\nhost3:1\n")
    env = {"DTRAIN_SSH_HOSTS": "", "DTRAIN_SSH_HOSTFILE": str(hosts)}
    ssh.submit("slots", "true", flags=["--workers=3"], env=env)
    ssh.wait("slots")
    assert [instance["node"] for instance in ssh.get("slots")["instances"]] == [
        "host2", "host2", "host3"]
    ssh.submit("holds", "sleep", "600", flags=["--grace-period=1s"], env=env)
    until(lambda: ssh.dtrain("exec", "holds", "--", "true", expect=None).code == 0, "it runs")
    full = ssh.submit("full", "true", flags=["--workers=2"], env=env, expect=EXIT_ENGINE)
    assert "host2  lacks 2 free slots: your other jobs use 1 of its 2" in full.err
    many = ssh.submit("many", "true", flags=["--workers=4"], env=env, expect=EXIT_USAGE)
    assert "its hosts have 3: list more" in many.err
    hosts.write_text("host2\nhost3 slot=1\n")
    junk = ssh.submit("junk", "true", env=env, expect=EXIT_USAGE)
    assert f"{hosts}:2: bad word 'slot=1'" in junk.err and junk.err.count("\n") == 1


def nodes_of(ssh, name, *command, flags, env):
    """The host of each worker of a job that has ended."""
    ssh.submit(name, *(command or ("true",)), flags=flags, env=env)
    ssh.wait(name)
    return [instance["node"] for instance in ssh.get(name)["instances"]]


def test_hosts_are_those_of_wcoll_or_genders_without_those_that_are_excluded(ssh, ssh_home):
    hosts = ssh_home.folder / "hosts"
    hosts.write_text("host[2-3],host1  # all\n")
    wcoll = {"DTRAIN_SSH_HOSTS": "", "WCOLL": str(hosts)}
    assert nodes_of(ssh, "wcoll", flags=["--workers=3"], env=wcoll) == ["host2", "host3", "host1"]
    assert nodes_of(ssh, "fewer", flags=["--workers=2", "--exclude-hosts=host[1-2],host9"],
                    env=wcoll) == ["host3", "host3"]
    named = {**wcoll, "DTRAIN_SSH_HOSTS": "host1"}
    assert nodes_of(ssh, "named", flags=[], env=named) == ["host1"]
    ssh_home.script("nodeattr", '[ "$*" = "-q gpu" ] && echo "host[1-2]"\n')
    genders = {"DTRAIN_SSH_HOSTS": "genders:gpu:2,host3",
               "PATH": f"{ssh_home.folder}:{ssh_home.env['PATH']}"}
    assert nodes_of(ssh, "genders", flags=["--workers=4"], env=genders) == ["host1"] * 2 + ["host2"] * 2
    listed = ssh.dtrain("check", "--exclude-hosts=host1", env=wcoll).out.splitlines()[-3:-1]
    assert ["host2" in listed[0], "host3" in listed[1]] == [True, True]
    none = ssh.submit("none", "true", flags=["--exclude-hosts=host[1-3]"], expect=EXIT_USAGE)
    assert "--exclude-hosts: no hosts are left" in none.err


def test_gpus_of_hosts_are_included_and_excluded_as_deepspeed_has_it(ssh):
    env = {"DTRAIN_SSH_HOSTS": "host1:4,host2:4,host3:4"}
    show = ("sh", "-c", "echo $CUDA_VISIBLE_DEVICES")

    def shown(name, count):
        return [ssh.lines(name, "-i", f"worker-{rank}") for rank in range(count)]

    flags = ["--workers=3", "--gpus=1", "--include=host1:1,3@host3:2"]
    assert nodes_of(ssh, "some", *show, flags=flags, env=env) == ["host1", "host1", "host3"]
    assert shown("some", 3) == [["1,3"], ["1,3"], ["2"]]
    flags = ["--workers=2", "--exclude=host1:0,2@host2@host3:0,1,2"]
    assert nodes_of(ssh, "others", *show, flags=flags, env=env) == ["host1", "host1"]
    assert shown("others", 2) == [["1,3"], ["1,3"]]
    few = ssh.submit("few", "true", flags=["--gpus=3", "--include=host1:1,3"], env=env,
                     expect=EXIT_ENGINE)
    assert "host1  lacks 3 free GPUs: 2 of its 2 are free" in few.err
    absent = ssh.submit("absent", "true", flags=["--include=host2:0,7"], env=env, expect=EXIT_ENGINE)
    assert "host2  lacks GPU 7: it has 4 (0 1 2 3)" in absent.err
    unknown = ssh.submit("unknown", "true", flags=["--include=host9"], env=env, expect=EXIT_USAGE)
    assert "--include: 'host9' is not among the hosts" in unknown.err


def test_all_hosts_that_cannot_be_used_are_named_at_once(ssh, ssh_hosts, ssh_home):
    marker = ssh_home.folder / "started"
    env = {**BRIEF_LOOKUPS, "DTRAIN_SSH_HOSTS": "host1,no-such-host.invalid,host2,127.0.0.1"}
    refused = ssh.submit("table", "touch", str(marker), flags=["--workers=4"], env=env,
                         expect=EXIT_ENGINE)
    assert "2 of 4 hosts cannot be used" in refused.err
    assert "no-such-host.invalid" in refused.err and "127.0.0.1" in refused.err
    assert "host1" not in refused.err
    assert not marker.exists()
    nothing_left(ssh_hosts)
    absent = ssh.submit("absent", "no-such-program", expect=EXIT_ENGINE)
    assert "host1  lacks the program no-such-program" in absent.err
    folder = ssh.submit("folder", "true", flags=["--working-dir=/no/such"], expect=EXIT_ENGINE)
    assert "host1  lacks the folder /no/such" in folder.err


def test_a_changed_or_unknown_host_key_is_said_and_asked_of_nobody(ssh, ssh_home, ssh_hosts):
    known = ssh_home.folder / "known_hosts"
    own = ssh_home.folder / "bin"
    own.mkdir()
    (own / "ssh").write_text(f"#!/bin/sh\nexec {ssh_hosts.folder}/bin/ssh "
                             f"-o UserKnownHostsFile={known} \"$@\"\n")
    (own / "ssh").chmod(0o755)
    env = {"PATH": f"{own}:{ssh_home.env['PATH']}"}
    known.write_text("")
    unknown = ssh.submit("unknown", "true", env=env, expect=EXIT_ENGINE)
    assert "host key is unknown here: run ssh host1" in unknown.err
    true_keys = pathlib.Path(ssh_hosts.folder, "known_hosts").read_text().splitlines()
    other = pathlib.Path(ssh_hosts.folder, "id.pub").read_text().split()[1]
    known.write_text("".join(f"{line.split()[0]} ssh-ed25519 {other}\n" for line in true_keys))
    changed = ssh.submit("changed", "true", env=env, expect=EXIT_ENGINE)
    assert "host key has changed" in changed.err and "ssh-keygen -R host1" in changed.err


def test_names_that_a_shell_would_read_are_refused(ssh, ssh_home):
    marker = ssh_home.folder / "ran"
    for name in f"$(touch {marker})", f"host1;touch {marker}", "-oProxyCommand=x", "host1,host1":
        result = ssh.submit("bad", "true", env={"DTRAIN_SSH_HOSTS": name}, expect=EXIT_USAGE)
        assert "--hosts" in result.err and result.err.count("\n") == 1
    assert not marker.exists()
    assert "--hosts" in ssh.submit("none", "true", env={"DTRAIN_SSH_HOSTS": ""},
                                   expect=EXIT_USAGE).err


def test_delete_leaves_nothing_on_a_host(ssh, ssh_hosts):
    running(ssh, "deleted")
    for host in ssh_hosts.names if ssh_hosts.apart else []:
        until(lambda: ssh_hosts.count(host) == 2, "the rank and its daemon run")
    ssh.dtrain("delete", "deleted")
    nothing_left(ssh_hosts)


def test_a_killed_supervisor_leaves_nothing_on_a_host(ssh, ssh_home, ssh_hosts):
    running(ssh, "widow")
    owner = json.loads((record(ssh_home, "widow") / "status.json").read_text())
    os.kill(owner["supervisor_pid"], signal.SIGKILL)
    nothing_left(ssh_hosts)
    assert ssh.get("widow")["status"] == "FAILED"


def test_a_killed_ssh_fails_the_gang_and_leaves_nothing_on_a_host(ssh, ssh_home, ssh_hosts):
    running(ssh, "cut")
    os.kill(ssh_processes(ssh_home)["host2"], signal.SIGKILL)
    ssh.wait("cut", expect=EXIT_JOB_FAILED)
    cause = ssh.get("cut")["cause"]
    assert cause["instance"] == "worker-1" and "host2 was lost" in cause["message"]
    explained = ssh.dtrain("explain", "cut").out
    assert explained.startswith("job/cut failed ") and cause["message"] in explained
    nothing_left(ssh_hosts)


@pytest.mark.usefixtures("apart")
def test_a_killed_rank_leaves_nothing_on_a_host(ssh, ssh_hosts):
    running(ssh, "shot")
    ssh_hosts.on("host3", "kill -KILL $(grep -lsF DTRAIN_PROCESS= /proc/[0-9]*/environ | "
                          "cut -d/ -f3)")
    ssh.wait("shot", expect=EXIT_JOB_FAILED)
    cause = ssh.get("shot")["cause"]
    assert (cause["instance"], cause["signal"]) == ("worker-2", "SIGKILL")
    assert ssh.lines("shot") == []  # No shell's "Killed" and "Terminated".
    nothing_left(ssh_hosts)


def test_secrets_are_in_nobodys_list_of_processes(ssh, ssh_home, ssh_hosts):
    secrets = ssh_home.folder / "secrets.env"
    secrets.write_text("TOKEN=hushhush\n")
    secrets.chmod(0o600)
    running(ssh, "secret", f"--env-file={secrets}")
    for host in ssh_hosts.names:
        assert "hushhush" not in ssh_hosts.on(host, "ps -eo args")
    assert not any(b"hushhush" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
                   for pid in ssh_home.processes())
    ssh.submit("told", "sh", "-c", "echo $TOKEN", flags=[f"--env-file={secrets}"])
    ssh.wait("told")
    assert ssh.lines("told") == ["worker-0 | hushhush"] or ssh.lines("told") == ["hushhush"]


@pytest.mark.usefixtures("apart")
def test_a_host_that_loses_its_power_fails_the_gang(ssh, ssh_hosts):
    running(ssh, "power")
    try:
        ssh_hosts.run("stop", "2")
        ssh.wait("power", expect=EXIT_JOB_FAILED)
    finally:
        ssh_hosts.run("start", "2")
    cause = ssh.get("power")["cause"]
    assert cause["instance"] == "worker-1" and "host2 was lost" in cause["message"]
    ssh.dtrain("delete", "power")  # Its agent had no time to tidy up.
    nothing_left(ssh_hosts)


@pytest.mark.usefixtures("apart")
def test_a_host_that_is_cut_off_is_lost_and_ends_its_rank(ssh, ssh_hosts):
    running(ssh, "silent")
    until(lambda: ssh_hosts.inside("host2") >= 2, "the rank and its daemon run")
    with ssh_hosts.cut("host2"):
        ssh.wait("silent", expect=EXIT_JOB_FAILED)
        cause = ssh.get("silent")["cause"]
        assert cause["instance"] == "worker-1" and "host2 was lost" in cause["message"]
        nothing_left(ssh_hosts, ["host1", "host3"])
        until(lambda: ssh_hosts.inside("host2") == 0, "the rank on host2 ends by itself", 90)
    nothing_left(ssh_hosts)


@pytest.fixture
def frozen(apart, ssh_home, ssh_hosts):
    """A folder on host3 in which even SIGKILL does not end who looks into it, as on a network's file
    system whose server is gone."""
    folder = ssh_home.folder / "frozen"
    with subprocess.Popen([f"{ssh_hosts.folder}/bin/ssh", "-tt", "host3", "python3",
                           str(HERE / "frozen_mount.py"), str(folder)], text=True,
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as mount:
        try:
            if mount.stdout.readline().strip() != "frozen":
                pytest.skip("this machine has no FUSE")
            yield folder
        finally:
            mount.terminate()  # With its terminal the program there ends, and whom it held.
            ssh_hosts.on("host3", f"umount -l {folder}")


def test_processes_that_nobody_can_kill_are_named_and_stop_nothing(ssh, ssh_hosts, frozen):
    held = "read -r pid _ </proc/self/stat; echo $pid"
    ssh.submit("stuck", "sh", "-c", f"[ $RANK = 2 ] || exec sleep 600; sh -c '{held}; exec cat {frozen}/x' &"
               " sleep 1; exit 7", flags=["--workers=3", "--grace-period=100ms"])
    ssh.wait("stuck", expect=EXIT_JOB_FAILED)
    pid, told = ssh.lines("stuck", "-i", "worker-2")
    left = f"survived SIGKILL: {pid} (see ps -o pid,stat,wchan)"
    assert told == f"dtrain: processes on host3 {left}"
    assert ssh.get("stuck")["cause"]["exitCode"] == 7
    said = ssh.dtrain("delete", "stuck", expect=EXIT_ENGINE).err
    assert said.endswith(f":\n  host3  processes {left}\n") and "the job is deleted" in said


def test_a_gpu_is_nobodys_while_a_process_of_its_last_job_does_not_end(ssh, ssh_hosts, frozen):
    claims = f"{ssh_hosts.folder}/gpus3"
    ssh_hosts.on("host3", f"mkdir -pm 1777 {claims}; printf 'lost\\n\\n' >{claims}/gpu-1.gone; >{claims}/gone; "
                 f"DTRAIN_JOB_UID=lost setsid cat {frozen}/x >/dev/null 2>&1 </dev/null & true")
    refused = ssh.submit("next", "true", flags=["--gpus=4"], env={"DTRAIN_SSH_HOSTS": "host3"},
                         expect=EXIT_ENGINE)
    assert "host3  processes of the job that had GPU 1 last survived SIGKILL: " in refused.err


@pytest.mark.usefixtures("apart")
def test_hosts_that_the_submitter_is_cut_off_from_end_their_ranks(ssh, ssh_hosts):
    running(ssh, "cutoff")
    for host in ssh_hosts.names:
        until(lambda: ssh_hosts.inside(host) >= 2, "the rank and its daemon run")
    with contextlib.ExitStack() as cuts:
        for host in ssh_hosts.names:
            cuts.enter_context(ssh_hosts.cut(host))
        ssh.wait("cutoff", expect=EXIT_JOB_FAILED)
        for host in ssh_hosts.names:
            until(lambda: ssh_hosts.inside(host) == 0, f"the rank on {host} ends by itself", 90)
    nothing_left(ssh_hosts)


@pytest.mark.usefixtures("apart")
def test_hosts_that_are_cut_off_from_each_other_are_found_and_keep_nothing(ssh, ssh_hosts):
    running(ssh, "split")
    with ssh_hosts.cut("host1", "host2"):
        assert ssh.get("split")["status"] == "RUNNING"  # What a rank makes of it is its own.
        ssh.dtrain("delete", "split")
        nothing_left(ssh_hosts)
        refused = ssh.submit("apart", "true", flags=["--workers=3"], expect=EXIT_ENGINE)
        assert "host1  cannot connect to host2 (10.77.0.12)" in refused.err


def test_an_elastic_job_goes_on_without_a_host_that_is_lost(ssh, ssh_home, ssh_hosts):
    running(ssh, "elastic", "--min-workers=2")
    os.kill(ssh_processes(ssh_home)["host2"], signal.SIGKILL)
    until(lambda: "host2 was lost" in ssh.get("elastic").get("reason", ""), "the loss is said")
    job = ssh.get("elastic")
    assert job["status"] == "RUNNING"
    assert [instance["status"] for instance in job["instances"]] == ["Running", "Failed", "Running"]
    explained = ssh.dtrain("explain", "elastic").out.splitlines()
    assert explained[0].startswith("job/elastic has been running for ")
    assert "worker-1 on host2 was lost" in explained[1] and explained[1].endswith("; workers left: 2")
    ssh.dtrain("delete", "elastic")
    nothing_left(ssh_hosts)


@pytest.mark.usefixtures("apart")
def test_ranks_are_reached_at_the_interface_that_is_named(ssh):
    ssh.submit("named", "sh", "-c", "echo $MASTER_ADDR",
               env={"DTRAIN_SSH_HOSTS": "host2", "DTRAIN_SSH_INTERFACE": "eth0"})
    ssh.wait("named")
    assert ssh.lines("named", "-i", "worker-0") == ["10.77.0.12"]
    absent = ssh.submit("absent", "true", env={"DTRAIN_SSH_INTERFACE": "ib0"}, expect=EXIT_ENGINE)
    assert "host1  lacks the interface ib0" in absent.err


@pytest.mark.usefixtures("apart")
def test_an_elastic_job_is_restarted_on_the_hosts_that_are_left(ssh, ssh_home, ssh_hosts):
    flag = ssh_home.folder / "flag"
    ssh.submit("rest", "sh", "-c", "echo run $DTRAIN_RESTART_COUNT of $WORLD_SIZE; "
               f"[ $DTRAIN_RESTART_COUNT = 0 ] || exit 0; until [ -e {flag} ]; do sleep 0.1; done; exit 1",
               flags=["--workers=3", "--min-workers=2", "--max-restarts=1"])
    until(lambda: ssh.get("rest")["status"] == "RUNNING", "the job runs")
    try:
        ssh_hosts.run("stop", "2")
        until(lambda: "host2 was lost" in ssh.get("rest").get("reason", ""), "the loss is said")
        flag.touch()
        ssh.wait("rest")
    finally:
        ssh_hosts.run("start", "2")
    job = ssh.get("rest")
    assert [(each["name"], each["node"]) for each in job["instances"]] == [
        ("worker-0", "host1"), ("worker-1", "host3")]
    assert ssh.lines("rest", "-i", "worker-1") == ["run 1 of 2"]


def test_workers_are_added_and_taken_away_while_the_others_run(ssh, ssh_hosts):
    ssh.submit("scaled", *SLEEP, flags=["--workers=2", "--min-workers=1", "--max-workers=3",
                                        "--grace-period=1s"])
    until(lambda: ssh.get("scaled")["status"] == "RUNNING", "the job runs")

    def nodes():
        return [each["node"] for each in ssh.get("scaled")["instances"]
                if each["status"] == "Running"]

    assert nodes() == ["host1", "host2"]
    ssh.dtrain("scale", "scaled", "--workers=3")
    until(lambda: nodes() == ["host1", "host2", "host3"], "the third runs")
    ssh.dtrain("scale", "scaled", "--workers=1")
    until(lambda: nodes() == ["host1"], "one is left")
    if ssh_hosts.apart:
        until(lambda: [ssh_hosts.count(host) for host in ssh_hosts.names] == [2, 0, 0],
              "the others' processes have ended")
    ssh.dtrain("delete", "scaled")
    nothing_left(ssh_hosts)


def test_following_logs_ends_with_ctrl_c_and_the_job_goes_on(ssh):
    ssh.submit("followed", "sh", "-c", "echo first; exec sleep 600")
    with ssh.home.start([ssh.home.dtrain_path, "logs", *ssh.flags, "-f", "followed"]) as following:
        assert b"first" in following.stdout.readline()
        following.send_signal(signal.SIGINT)
        assert b"stopped following; job/followed goes on" in following.stderr.read()
        assert following.wait() == 130
    assert ssh.get("followed")["status"] == "RUNNING"


def test_data_is_a_folder_that_all_hosts_have(ssh, ssh_home):
    data = ssh_home.folder / "my data"
    data.mkdir()
    (data / "words").write_text("here\n")
    ssh.submit("data", "cat", f"{data}/words", flags=["--workers=3", f"--data-dir={data}:{data}"])
    ssh.wait("data")
    assert ssh.lines("data", "-i", "worker-2") == ["here"]
    absent = ssh.submit("absent", "true", flags=["--data-dir=/no/data:/no/data"], expect=EXIT_ENGINE)
    assert "host1  lacks the data /no/data" in absent.err
    for flags, word in [((f"--data-dir={data}:/data",), "mounts nothing on the hosts"),
                        (("--data=nas://server/x:/data",), "--data"),
                        (("--config-file=/etc/hosts:/hosts",), "--config-file")]:
        refused = ssh.submit("moved", "true", flags=flags, expect=EXIT_USAGE)
        assert word in refused.err and refused.err.count("\n") == 1
    ssh_home.dtrain("data", "add", "words", f"--path={data}")
    ssh.submit("named", "cat", "words", flags=[f"--data=words:{data}", f"--working-dir={data}"])
    ssh.wait("named")
    assert ssh.lines("named", "-i", "worker-0") == ["here"]


def test_a_shell_is_opened_beside_a_rank(ssh, ssh_home, ssh_hosts):
    if not ssh_hosts.gives_terminals:
        pytest.skip("an sshd of an ordinary user may give nobody a terminal here")
    ssh.submit("shell", "sleep", "600", flags=["--workers=2"])
    terminal = pexpect.spawn(ssh_home.dtrain_path, ["attach", *ssh.flags, "shell", "-i", "worker-1"],
                             env=ssh_home.env, cwd=str(ssh_home.folder), timeout=30)
    terminal.sendline("echo rank=$RANK; tty")
    terminal.expect("rank=1")
    terminal.expect("/dev/pts/")
    terminal.sendline("exit 5")
    terminal.expect(pexpect.EOF)
    terminal.close()
    assert terminal.exitstatus == 5


def test_a_tensorboard_runs_beside_the_first_rank_and_is_reached_from_here(ssh, ssh_home, ssh_hosts):
    serve = ("for word; do case $word in --port=*) port=${word#*=} ;; --logdir=*) cd ${word#*=} ;; "
             "esac; done\nexec /usr/bin/python3 -m http.server -b localhost $port\n")
    (ssh_home.folder / "events").write_text("seen\n")
    with ssh_hosts.tool("host1", "tensorboard", serve):
        ssh.submit("board", "sleep", "600", flags=["--tensorboard", f"--logdir={ssh_home.folder}"])
        with ssh_home.start([ssh_home.dtrain_path, "tensorboard", *ssh.flags, "board"]) as board:
            url = board.stdout.readline().decode().strip()

            def seen():
                try:
                    return urllib.request.urlopen(f"{url}/events", timeout=5).read()
                except OSError:
                    return None

            assert until(seen, "TensorBoard answers") == b"seen\n"
            board.send_signal(signal.SIGINT)
            assert board.wait() == 130
        ssh.dtrain("delete", "board")
    ssh.submit("none", "true", flags=["--tensorboard", f"--logdir={ssh_home.folder}"])
    ssh.wait("none")  # Without it, too.
