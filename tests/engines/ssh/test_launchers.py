"""Launchers: real ones, which start their workers on the other hosts by ssh and pdsh."""
import os

import pytest

import idx_data
from harness import EXIT_ENGINE, EXIT_JOB_FAILED, until

SHOW = "echo $OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE on $(hostname): $CUDA_VISIBLE_DEVICES"


# Stands for DeepSpeed's own: as its PDSHRunner does, it starts a process a host of the host file, and
# tells each its place.
DEEPSPEED = """
for word; do
  case $word in
    --hostfile=*) hosts=$(cut -d ' ' -f 1 "${word#*=}" | paste -sd ,) ;;
    --master_addr=*) master=$word ;;
    *) program=$word ;;
  esac
done
exec pdsh -S -f 1024 -w "$hosts" "export FROM=deepspeed; cd $PWD; sh ./$program --node_rank=%n $master"
"""


@pytest.fixture
def slots(ssh_home):
    ssh_home.env["DTRAIN_SSH_HOSTS"] = "host1:2,host2:2,host3:2"


@pytest.mark.usefixtures("apart")
def test_mpirun_starts_on_every_host_with_its_gpus_and_leaves_nothing(ssh, ssh_hosts):
    ssh.submit("mpi", "sh", "-c", f"cat $DTRAIN_HOSTFILE; mpirun sh -c '{SHOW}'; echo $WORD",
               flags=["mpijob", "--workers=3", "--gpus=2", "--env=WORD=it's"])
    ssh.wait("mpi")
    # Open MPI's parent may set its child's group after the child is another program, and says so.
    lines = [line for line in ssh.lines("mpi", "-i", "launcher-0") if "Warning: setpgid" not in line]
    assert lines[:3] == [f"10.77.0.1{number} slots=2" for number in (1, 2, 3)]
    assert sorted(lines[3:-1]) == [f"{rank} of 6 on host{1 + rank // 2}: 0,1" for rank in range(6)]
    assert lines[-1] == "it's"
    job = ssh.get("mpi")
    assert [(each["name"], each["node"]) for each in job["instances"]] == [
        ("launcher-0", "host1"), ("worker-0", "host1"), ("worker-1", "host2"), ("worker-2", "host3")]
    assert job["status"] == "SUCCEEDED" and job["requestGPUs"] == 6
    for host in ssh_hosts.names:
        until(lambda: ssh_hosts.of_jobs(host) == "", f"nothing of a job is left on {host}")


@pytest.mark.usefixtures("apart")
def test_the_trainer_trains_over_open_mpi_as_over_its_own_ring(ssh, ssh_home):
    if not (ssh_home.build.bin / "dtrain-mpi.so").exists():
        pytest.skip("built without libopenmpi-dev")
    data = idx_data.write(ssh_home.folder / "data")
    flags = [f"--data={data}", "--steps=40", "--log-every=20", "--no-progress", "--batch-size=16"]
    found = {}
    for name, kind, command in [
            ("mpi", ["mpijob"], ["mpirun", ssh_home.trainer_path, "--communication=mpi"]),
            ("ring", [], [ssh_home.trainer_path, "--communication=ring"])]:
        csv = ssh_home.folder / f"{name}.csv"
        ssh.submit(name, *command, *flags, f"--csv={csv}", flags=[*kind, "--workers=3"])
        ssh.wait(name)
        rows = [line.split(",") for line in csv.read_text().splitlines()]
        found[name] = [float(row[rows[0].index("loss")]) for row in rows[1:]]
    assert "Open MPI" in "".join(ssh.lines("mpi", "-i", "launcher-0"))
    assert "TCP" in "".join(ssh.lines("ring", "-i", "worker-0"))
    assert len(found["mpi"]) == 2 and found["mpi"] == pytest.approx(found["ring"], abs=1e-5)


def test_several_workers_of_a_host_are_one_line_of_the_host_file(ssh, slots):
    ssh.submit("lines", "sh", "-c", "cat $DTRAIN_HOSTFILE; discover_hosts.sh",
               flags=["horovodjob", "--workers=3"])
    ssh.wait("lines")
    lines = ssh.lines("lines", "-i", "launcher-0")
    assert [line.split("slots=")[1] for line in lines[:2]] == ["2", "1"]
    assert [line.rpartition(":")[2] for line in lines[2:]] == ["2", "1"]


def test_pdsh_starts_on_every_host_with_the_jobs_variables_in_its_folder(ssh, ssh_home, ssh_hosts):
    folder = ssh_home.folder / "work"
    folder.mkdir()
    ssh.submit("pdsh", "sh", "-c",
               "pdsh -S -N -w $(cut -d ' ' -f 1 $DTRAIN_HOSTFILE | paste -sd ,) "
               "'echo $SSH_CONNECTION | cut -d \" \" -f 3; pwd; echo $WORD; exit 3'; echo end $?",
               flags=["deepspeedjob", "--workers=3", "--env=WORD=with '\"all'",
                      f"--working-dir={folder}"])
    ssh.wait("pdsh")
    lines = [line for line in ssh.lines("pdsh", "-i", "launcher-0") if not line.startswith("pdsh@")]
    assert lines[-1] == "end 3"
    # Hosts that share their processes are one to it.
    assert len({line for line in lines if line[0].isdigit()}) == (3 if ssh_hosts.apart else 1)
    assert lines.count(str(folder)) == 3 and lines.count("with '\"all'") == 3


@pytest.mark.usefixtures("apart")
def test_deepspeed_starts_a_program_on_every_host_of_its_host_file(ssh, ssh_home, ssh_hosts):
    code = ssh_home.folder / "code"
    code.mkdir()
    (code / "train.py").write_text('mkdir -p ckpt\necho "$*" >ckpt/$(hostname)\n'
                                   'echo "$(hostname) $FROM $WORD $* in $PWD"\n')
    with ssh_hosts.tool("host1", "deepspeed", DEEPSPEED):
        ssh.submit("ds", "deepspeed", "train.py", flags=[
            "deepspeedjob", "--workers=3", "--sync-mode=local", f"--sync-source={code}",
            "--env=WORD=of the job"])
        ssh.wait("ds")
    told = {line.split(": ", 1)[1].rpartition(" in ")[0] for line in ssh.lines("ds", "-i", "launcher-0")
            if " in /" in line}
    assert told == {f"host{rank + 1} deepspeed of the job --node_rank={rank} --master_addr=10.77.0.11"
                    for rank in range(3)}
    ssh.dtrain("cp", "ds:ckpt", ssh_home.folder)  # On the disk that the hosts share.
    assert sorted(os.listdir(ssh_home.folder / "ckpt")) == ssh_hosts.names


@pytest.mark.usefixtures("apart")
def test_what_a_launcher_started_ends_with_the_job(ssh, ssh_hosts):
    ssh.submit("long", "mpirun", "--map-by", "node", "sleep", "600",
               flags=["mpijob", "--workers=3", "--grace-period=1s"])
    for host in ssh_hosts.names:
        until(lambda: "sleep 600" in ssh_hosts.on(host, "ps -eo args"), f"a rank runs on {host}", 60)
    ssh.dtrain("delete", "long")
    for host in ssh_hosts.names:
        until(lambda: ssh_hosts.of_jobs(host) == "", f"nothing of a job is left on {host}", 60)
        assert "orted" not in ssh_hosts.on(host, "ps -eo comm")


def test_an_etjob_finds_the_workers_it_is_scaled_to(ssh, slots):
    ssh.submit("et", "sh", "-c", "while sleep 0.2; do echo $(discover_hosts.sh | cut -d : -f 2); done",
               flags=["etjob", "--workers=2", "--min-workers=1", "--max-workers=4",
                      "--grace-period=1s"])
    until(lambda: "2" in ssh.lines("et", "-i", "launcher-0"), "the first two are found")
    ssh.dtrain("scale", "et", "--workers=4")
    until(lambda: "2 2" in ssh.lines("et", "-i", "launcher-0"), "four are found")
    ssh.dtrain("scale", "et", "--workers=3")
    until(lambda: ssh.lines("et", "-i", "launcher-0")[-1] == "2 1", "three are found")


def test_a_launchers_exit_code_is_the_jobs(ssh):
    ssh.submit("fails", "sh", "-c", "echo bad >&2; exit 3", flags=["mpijob", "--workers=2"])
    ssh.wait("fails", expect=EXIT_JOB_FAILED)
    cause = ssh.get("fails")["cause"]
    assert (cause["instance"], cause["exitCode"], cause["lastStderr"]) == ("launcher-0", 3, ["bad"])


def test_hosts_that_let_no_launcher_in_are_named_before_anything_starts(ssh, ssh_home, ssh_hosts):
    """What the hosts find under the name of ssh is the cluster's."""
    own = ssh_home.folder / "own"
    own.mkdir()
    (own / "ssh").write_text("#!/bin/sh\necho 'Permission denied (publickey).' >&2\nexit 255\n")
    (own / "ssh").chmod(0o755)
    refused = ssh.submit("closed", "mpirun", "true", expect=EXIT_ENGINE,
                         flags=["mpijob", "--workers=3", f"--env=PATH={own}:/usr/bin:/bin"])
    assert "host1  cannot log in to host" in refused.err
    assert "Permission denied" in refused.err
