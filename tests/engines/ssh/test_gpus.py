"""GPUs of hosts: each rank has its own, and no two jobs the same. Each host says that it has four."""
import pathlib

import pytest

from harness import EXIT_ENGINE, until

pytestmark = pytest.mark.usefixtures("apart")

SHOW = ("sh", "-c", "echo GPU $CUDA_VISIBLE_DEVICES; exec sleep 600")


def devices(ssh, name, worker):
    until(lambda: any(line.startswith("GPU") for line in ssh.lines(name, "-i", f"worker-{worker}")),
          f"worker-{worker} says its GPUs")
    return ssh.lines(name, "-i", f"worker-{worker}")[0].removeprefix("GPU ").split(",")


def test_ranks_and_jobs_share_no_gpu(ssh, ssh_hosts):
    one_host = {"DTRAIN_SSH_HOSTS": "host1:4"}
    ssh.submit("first", *SHOW, flags=["--workers=2", "--gpus=1", "--grace-period=1s"], env=one_host)
    seen = [devices(ssh, "first", worker) for worker in range(2)]
    assert seen[0] == seen[1] and sorted(seen[0]) == ["0", "1"]
    assert ssh.get("first")["allocatedGPUs"] == 2
    ssh.submit("second", *SHOW, flags=["--gpus=2", "--grace-period=1s"], env=one_host)
    assert devices(ssh, "second", 0) == ["2", "3"]
    refused = ssh.submit("third", "true", flags=["--gpus=1"], env=one_host, expect=EXIT_ENGINE)
    assert "host1  lacks 1 free GPUs: 0 of its 4 are free" in refused.err
    ssh.dtrain("delete", "first")
    ssh.submit("fourth", *SHOW, flags=["--gpus=2", "--grace-period=1s"], env=one_host)
    assert devices(ssh, "fourth", 0) == ["0", "1"]


def test_a_gpu_is_free_when_its_rank_was_killed(ssh, ssh_hosts):
    env = {"DTRAIN_SSH_HOSTS": "host2"}
    ssh.submit("killed", *SHOW, flags=["--gpus=4"], env=env)
    assert devices(ssh, "killed", 0) == ["0", "1", "2", "3"]
    # The agent too: nobody is left to tidy up.
    ssh_hosts.on("host2", "kill -KILL $(ps -eo pid,args | awk '/[s]cript=.[(]dd|[s]leep 600/ {print $1}')"
                 " $(grep -lsF DTRAIN_PROCESS= /proc/[0-9]*/environ | cut -d/ -f3); true")
    ssh.wait("killed", expect=None)
    ssh.submit("next", "sh", "-c", "echo GPU $CUDA_VISIBLE_DEVICES", flags=["--gpus=4"], env=env)
    assert devices(ssh, "next", 0) == ["0", "1", "2", "3"]


def test_a_rank_without_gpus_sees_none_and_the_users_word_wins(ssh):
    env = {"DTRAIN_SSH_HOSTS": "host3"}
    ssh.submit("own", "sh", "-c", "echo GPU $CUDA_VISIBLE_DEVICES",
               flags=["--gpus=1", "--env=CUDA_VISIBLE_DEVICES=7"], env=env)
    assert devices(ssh, "own", 0) == ["7"]


def test_jobs_of_this_machine_and_over_ssh_are_given_no_gpu_twice(ssh, ssh_home, ssh_hosts):
    """As if this machine were host1, to which others have an ssh: one registry of claims."""
    there = {"DTRAIN_SSH_HOSTS": "host1"}
    here = {"DTRAIN_GPU_CLAIMS": f"{ssh_hosts.folder}/gpus1", "DTRAIN_LOCAL_GPUS": "4",
            "DTRAIN_BACKEND": "local"}
    ssh.submit("far", *SHOW, flags=["--gpus=1", "--grace-period=1s"], env=there)
    assert devices(ssh, "far", 0) == ["0"]
    ssh_home.submit("near", "sleep", "600", flags=["--gpus=2", "--grace-period=1s"], env=here)
    try:
        ssh.submit("farther", *SHOW, flags=["--gpus=1", "--grace-period=1s"], env=there)
        assert devices(ssh, "farther", 0) == ["3"]
        refused = ssh.submit("none", "true", flags=["--gpus=1"], env=there, expect=EXIT_ENGINE)
        assert "lacks 1 free GPUs: 0 of its 4 are free" in refused.err
        node = ssh_home.dtrain("top", "node", "-o", "json", env=here).json()[0]
        assert (node["totalGPUs"], node["freeGPUs"]) == (4, 0)
    finally:
        ssh_home.dtrain("delete", "near", env=here)
    ssh.submit("after", *SHOW, flags=["--gpus=2", "--grace-period=1s"], env=there)
    assert devices(ssh, "after", 0) == ["1", "2"]


def test_ranks_that_would_see_several_parts_of_gpus_are_refused(ssh, ssh_hosts):
    login = pathlib.Path(ssh_hosts.folder, "home3", ".bashrc")
    login.write_text("export CUDA_VISIBLE_DEVICES=MIG-a,MIG-b\n")
    try:
        refused = ssh.submit("parts", "true", flags=["--workers=2", "--gpus=1", "--gpus-visible=node"],
                             env={"DTRAIN_SSH_HOSTS": "host3:2"}, expect=EXIT_ENGINE)
    finally:
        login.unlink()
    assert "of parts of GPUs (MIG), CUDA shows a process only one" in refused.err


def test_a_worker_that_is_started_anew_sees_the_gpus_that_it_has_by_then(ssh):
    """The others' CUDA_VISIBLE_DEVICES cannot change any more: each sees its own alone."""
    ssh.submit("anew", "sh", "-c",
               "echo GPU $CUDA_VISIBLE_DEVICES; echo $LOCAL_RANK of $LOCAL_WORLD_SIZE; "
               "[ $RANK$DTRAIN_RESTART_COUNT != 10 ] || exit 1; [ $RANK = 0 ] || exit 0; sleep 5",
               flags=["--workers=2", "--gpus=1", "--min-workers=1", "--max-workers=2",
                      "--max-restarts=1", "--grace-period=1s"], env={"DTRAIN_SSH_HOSTS": "host2"})
    ssh.wait("anew")
    lines = [ssh.lines("anew", "-i", f"worker-{worker}") for worker in range(2)]
    first, others = lines[0][0], {"GPU 0", "GPU 1"} - {lines[0][0]}
    assert lines[0] == [first, "0 of 1"] and len(others) == 1  # Either: both ask at once.
    assert [line for line in lines[1] if not line.startswith("dtrain")] == [*others, "0 of 1"] * 2


def report(*ill):
    """An nvidia-smi of four GPUs."""
    return "cat <<'END'\n" + "".join(f"{index}, H100, 580, {3 if index in ill else 0}, No, No, [N/A], GPU-{index}\n"
                                     for index in range(4)) + "END\n"


def test_a_faulty_gpu_is_left_out_or_its_host_refused(ssh, ssh_hosts):
    env = {"DTRAIN_SSH_HOSTS": "host1"}
    fault = "GPU 0 (H100): 3 uncorrectable ECC errors"
    with ssh_hosts.tool("host1", "nvidia-smi", report(0)):
        ssh.submit("others", *SHOW, flags=["--gpus=2", "--grace-period=1s"], env=env)
        until(lambda: any(line.startswith("GPU") for line in ssh.lines("others")), "it says its GPUs")
        told, seen = sorted(ssh.lines("others"), reverse=True)
        assert seen == "GPU 1,2" and told.startswith(f"dtrain: host1: {fault}")
        ssh.dtrain("delete", "others")
        refused = ssh.submit("all", "true", flags=["--gpus=4"], env=env, expect=EXIT_ENGINE)
        assert "host1  lacks 4 free GPUs: 3 of its 4 are free; " + fault in refused.err
        ssh.submit("any", *SHOW, flags=["--gpus=4", "--check-gpus=off"], env=env)
        assert devices(ssh, "any", 0) == ["0", "1", "2", "3"]
        ssh.dtrain("delete", "any")
        checked = ssh.dtrain("check", env={"DTRAIN_SSH_HOSTS": "host1,host2"}).out.splitlines()
        assert ["host1" in line for line in checked if fault in line] == [True]
    with ssh_hosts.tool("host1", "nvidia-smi", "echo 'Failed to initialize NVML: mismatch'; exit 18"):
        refused = ssh.submit("none", "true", flags=["--gpus=1"], env=env, expect=EXIT_ENGINE)
        assert "host1  nvidia-smi failed: Failed to initialize NVML: mismatch" in refused.err


def test_a_gpu_that_fails_in_a_run_is_left_out_of_the_next(ssh, ssh_hosts):
    with ssh_hosts.tool("host1", "nvidia-smi", report()) as path:
        ssh.submit("again", "sh", "-c", "echo GPU $CUDA_VISIBLE_DEVICES; [ $DTRAIN_RESTART_COUNT = 0 ] || exit 0; "
                   f"sed -i '/^0,/s/ 0, No/ 3, No/' {path}; exit 1",
                   flags=["--gpus=1", "--max-restarts=1"], env={"DTRAIN_SSH_HOSTS": "host1"})
        ssh.wait("again")
    assert ssh.lines("again")[-1] == "GPU 1" and ssh.lines("again", "--prev") == ["GPU 0"]


ELASTIC = ("sh", "-c", "echo GPU $CUDA_VISIBLE_DEVICES; echo $RANK of $WORLD_SIZE; exec sleep 600")
FAULT = "host1: GPU 0 (H100): 3 uncorrectable ECC errors"


def nodes(ssh, name):
    return [(each["name"], each["node"]) for each in ssh.get(name)["instances"]]


def told(ssh, name):
    """What the first worker's log says of GPUs; each rank has printed what it has by then."""
    count = len(nodes(ssh, name))
    until(lambda: all(f"{rank} of {count}" in ssh.lines(name, "-i", f"worker-{rank}") for rank in range(count)),
          "all ranks run")
    return [line for line in ssh.lines(name, "-i", "worker-0") if line.startswith("dtrain")]


def test_a_worker_with_a_faulty_gpu_takes_a_free_slot_of_another_host(ssh, ssh_hosts):
    env = {"DTRAIN_SSH_HOSTS": "host1:1,host2:1,host3:1"}
    with ssh_hosts.tool("host1", "nvidia-smi", report(0)):
        ssh.submit("moved", *ELASTIC, env=env, flags=["--workers=2", "--gpus=4", "--min-workers=2",
                                                      "--grace-period=1s"])
        assert nodes(ssh, "moved") == [("worker-0", "host3"), ("worker-1", "host2")]
        line, = told(ssh, "moved")
        assert line.startswith(f"dtrain: {FAULT}") and line.endswith("; worker-0 runs on host3 instead")
        assert ssh.get("moved")["reason"] == line.removeprefix("dtrain: ")
        assert devices(ssh, "moved", 1) == ["0", "1", "2", "3"]
        ssh.dtrain("delete", "moved")
        rigid = ssh.submit("rigid", "true", env=env, flags=["--workers=2", "--gpus=4"], expect=EXIT_ENGINE)
        assert "host1  lacks 4 free GPUs: 3 of its 4 are free; GPU 0 (H100)" in rigid.err


def test_a_launcher_follows_its_first_worker_to_another_host(ssh, ssh_hosts):
    with ssh_hosts.tool("host1", "nvidia-smi", report(0)):
        ssh.submit("led", "sleep", "600", env={"DTRAIN_SSH_HOSTS": "host1:1,host2:1,host3:1"},
                   flags=["etjob", "--workers=2", "--gpus=4", "--min-workers=1", "--max-workers=2",
                          "--grace-period=1s"])
        assert nodes(ssh, "led") == [("launcher-0", "host3"), ("worker-0", "host3"), ("worker-1", "host2")]
        ssh.dtrain("delete", "led")


def test_an_elastic_job_starts_without_a_worker_whose_gpu_is_faulty(ssh, ssh_hosts):
    """The other worker of that host stays, and those behind move up."""
    flags = ["--workers=4", "--gpus=2", "--grace-period=1s"]
    env = {"DTRAIN_SSH_HOSTS": "host1:2,host2:2"}
    with ssh_hosts.tool("host1", "nvidia-smi", report(0)):
        ssh.submit("fewer", *ELASTIC, flags=["--min-workers=3", *flags], env=env)
        assert nodes(ssh, "fewer") == [("worker-0", "host1"), ("worker-1", "host2"), ("worker-2", "host2")]
        line, = told(ssh, "fewer")
        assert line.startswith(f"dtrain: {FAULT}")
        assert line.endswith("; no host has a free slot with a good GPU: started without worker-3")
        seen = ssh.get("fewer")
        assert seen["reason"] == line.removeprefix("dtrain: ") and seen["allocatedGPUs"] == 6
        ssh.dtrain("delete", "fewer")
        refused = ssh.submit("all", "true", flags=["--min-workers=4", *flags], env=env, expect=EXIT_ENGINE)
        assert "1 of 2 hosts cannot be used" in refused.err
        assert "host1  lacks 2 free GPUs: 1 of its 4 are free; GPU 0 (H100)" in refused.err


def test_a_worker_is_left_out_of_a_restart_and_not_its_host(ssh, ssh_home, ssh_hosts):
    flag = ssh_home.folder / "flag"
    with ssh_hosts.tool("host1", "nvidia-smi", report()) as path:
        ssh.submit("again", "sh", "-c", "echo $RANK of $WORLD_SIZE; [ $DTRAIN_RESTART_COUNT = 0 ] || exit 0; "
                   f"until [ -e {flag} ]; do sleep 0.1; done; exit 1",
                   flags=["--workers=4", "--gpus=2", "--min-workers=2", "--max-restarts=1"],
                   env={"DTRAIN_SSH_HOSTS": "host1:2,host2:1,host3:1"})
        until(lambda: ssh.get("again")["status"] == "RUNNING", "the job runs")
        try:
            ssh_hosts.run("stop", "3")
            until(lambda: "host3 was lost" in ssh.get("again").get("reason", ""), "the loss is said")
            path.write_text("#!/bin/sh\n" + report(0))
            flag.touch()
            ssh.wait("again")
        finally:
            ssh_hosts.run("start", "3")
    assert nodes(ssh, "again") == [("worker-0", "host1"), ("worker-1", "host2")]
    first = ssh.lines("again", "-i", "worker-0")
    assert "0 of 2" in first and any(line.startswith(f"dtrain: {FAULT}") for line in first)


MEASURED = r"""for gpu in $(echo "$CUDA_VISIBLE_DEVICES" | tr , ' '); do
  fault=
  [ "$gpu" != 0 ] || fault='GPU 0 (H100): it is slow'
  all="$all${all:+, }{\"gpu\": \"$gpu\", \"type\": \"bf16\", \"flops\": 6e14, \"fault\": \"$fault\"}"
done
echo "{\"gpus\": [$all], \"link_faults\": []}"
[ "$1" = check-gpus ] || exit 2
"""


def test_a_slow_gpu_is_left_out_or_its_host_refused(ssh, ssh_hosts):
    env = {"DTRAIN_SSH_HOSTS": "host1"}
    flags = ["--check-gpus=measure", "--grace-period=1s"]
    with ssh_hosts.tool("host1", "nvidia-smi", report()), ssh_hosts.tool("host1", "dtrain-trainer", MEASURED):
        ssh.submit("slow", *SHOW, flags=["--gpus=2", *flags], env=env)
        until(lambda: any(line.startswith("GPU") for line in ssh.lines("slow")), "it says its GPUs")
        told, seen = sorted(ssh.lines("slow"), reverse=True)
        assert seen == "GPU 1,2"
        assert told == "dtrain: host1: GPU 0 (H100): it is slow; worker-0 uses GPU 1,2 instead"
        ssh.dtrain("delete", "slow")
        refused = ssh.submit("all", "true", flags=["--gpus=4", *flags], env=env, expect=EXIT_ENGINE)
        assert "host1  lacks 4 free GPUs: 3 of its 4 are free; GPU 0 (H100): it is slow" in refused.err
        ssh.submit("any", *SHOW, flags=["--gpus=4", "--grace-period=1s"], env=env)
        assert devices(ssh, "any", 0) == ["0", "1", "2", "3"]
        ssh.dtrain("delete", "any")
    with ssh_hosts.tool("host1", "dtrain-trainer", "echo 'check-gpus: no CUDA plug-in' >&2; exit 2"):
        ssh.submit("none", *SHOW, flags=["--gpus=1", *flags], env=env)
        until(lambda: any(line.startswith("GPU") for line in ssh.lines("none")), "it says its GPUs")
        assert ("dtrain: host1: the GPUs were not measured (--check-gpus=measure): check-gpus: no CUDA plug-in"
                in ssh.lines("none"))
        ssh.dtrain("delete", "none")
