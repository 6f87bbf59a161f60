"""Jobs on a real Slurm, where the conformance suite does not say it."""
import getpass
import json
import os
import re
import time

import pexpect
import pytest

from harness import EXIT_ENGINE, EXIT_JOB_FAILED, EXIT_NOT_FOUND, EXIT_USAGE, until


@pytest.fixture
def slurm(slurm_home):
    return slurm_home


def of_slurm(slurm, name):
    """Slurm's own number of the job."""
    return slurm.get(name)["uuid"]


def fill_all_nodes(slurm, *flags):
    """By the job "hog", which runs."""
    slurm.submit("hog", "sleep", "600", flags=["--workers=4", "--worker-cpu=8", *flags])
    slurm.running("hog")


def cancel_in_slurm(slurm, slurm_cluster, name, *flags):
    """A job that ran; what `wait` says of it."""
    slurm.submit(name, "sleep", "600", flags=flags)
    slurm.running(name)
    slurm_cluster.call("scancel", of_slurm(slurm, name))
    return slurm.dtrain("wait", name, expect=EXIT_JOB_FAILED)


def test_ranks_stand_on_nodes_as_slurm_placed_them(slurm):
    """Eight CPUs a node."""
    show = ("echo $RANK $LOCAL_RANK $LOCAL_WORLD_SIZE $NODE_RANK $GROUP_WORLD_SIZE "
            "$SLURMD_NODENAME $MASTER_ADDR:$MASTER_PORT; echo $TF_CONFIG >&2")
    slurm.submit("spread", "sh", "-c", show, flags=["--workers=3", "--worker-cpu=8"])
    slurm.wait_for_end("spread", 0)
    masters = set()
    for rank in range(3):
        numbers, master = slurm.lines("spread", "-i", f"worker-{rank}")[0].rsplit(" ", 1)
        assert numbers == f"{rank} 0 1 {rank} 3 node{rank + 1}"
        masters.add(master)
        tf_config = json.loads(slurm.lines("spread", "-i", f"worker-{rank}")[1])
        assert tf_config["task"] == {"index": rank, "type": "worker"}
        assert len(set(tf_config["cluster"]["worker"])) == 3
    assert len(masters) == 1


def test_several_ranks_of_a_node_know_their_places_on_it(slurm):
    """Two CPUs a rank are four ranks a node."""
    show = "echo $RANK $LOCAL_RANK $LOCAL_WORLD_SIZE $NODE_RANK $GROUP_WORLD_SIZE $SLURMD_NODENAME"
    slurm.submit("dense", "sh", "-c", show, flags=["--workers=8", "--worker-cpu=2"])
    slurm.wait_for_end("dense", 0)
    said = [slurm.lines("dense", "-i", f"worker-{rank}")[0] for rank in range(8)]
    assert said == [f"{rank} {rank % 4} 4 {rank // 4} 2 node{1 + rank // 4}" for rank in range(8)]


def test_ranks_of_one_machine_never_choose_the_same_port(slurm):
    """Nearly all are in use, says a stand-in, so that the ranks come to the same that is left."""
    slurm.stand_in("grep", 'case "$*" in *:??00\\ *) exit 1 ;; *:????\\ *) exit 0 ;; esac\n'
                           'exec /usr/bin/grep "$@"')
    slurm.submit("ports", "sh", "-c", "echo $TF_CONFIG", flags=["--workers=3"])
    slurm.wait_for_end("ports", 0)
    workers = json.loads(slurm.lines("ports", "-i", "worker-0")[0])["cluster"]["worker"]
    ports = [int(worker.rpartition(":")[2]) for worker in workers]
    assert len(set(ports)) == 3 and all(port % 256 == 0 for port in ports)


def test_every_rank_has_gpus_of_its_own(slurm):
    slurm.submit("gpus", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES",
                 flags=["--workers=2", "--gpus=2"])
    slurm.wait_for_end("gpus", 0)
    devices = [slurm.lines("gpus", "-i", f"worker-{rank}")[0].split(",") for rank in range(2)]
    assert sorted(devices[0] + devices[1]) == ["0", "1", "2", "3"]
    assert slurm.get("gpus")["requestGPUs"] == 4


def test_a_rank_with_one_gpu_sees_its_node_s_and_picks_its_own_by_local_rank(slurm):
    """Or its own alone, where somebody knows better."""
    show = ("sh", "-c", "echo $SLURMD_NODENAME $LOCAL_RANK $LOCAL_WORLD_SIZE $CUDA_VISIBLE_DEVICES")
    slurm.submit("node", *show, flags=["--workers=3", "--gpus=1"])
    slurm.submit("rank", *show, flags=["--workers=3", "--gpus=1", "--gpus-visible=rank"])
    for name in "node", "rank":
        slurm.wait_for_end(name, 0)
        reached = set()
        for rank in range(3):
            node, local_rank, size, devices = slurm.lines(name, "-i", f"worker-{rank}")[0].split()
            devices = devices.split(",")
            assert len(devices) == int(size) and (name == "node" or size == "1")
            reached.add((node, devices[int(local_rank)]))
        assert len(reached) == 3
    refused = slurm.submit("steps", "true", expect=EXIT_USAGE,
                           flags=["--workers=2", "--ps=1", "--gpus=1", "--gpus-visible=node"])
    assert refused.err.count("\n") == 1 and "drop it" in refused.err


def test_a_node_whose_gpu_is_faulty_is_named_before_the_command_starts(slurm):
    slurm.stand_in("nvidia-smi", 'for gpu in $(echo "$2" | tr , " "); do\n'
                                 'echo "$gpu, NVIDIA H100, $((gpu == 1 ? 3 : 0)), No, No, [N/A]"; done')
    flags = ["--workers=2", "--gpus=1"]
    slurm.submit("ill", "echo", "ran", flags=flags)
    cause = slurm.wait_for_end("ill", EXIT_JOB_FAILED)["cause"]
    assert "has a faulty GPU" in cause["lastStderr"][-1] and ": 1, NVIDIA H100, 3, No, No, [N/A] (" in cause["lastStderr"][-1]
    assert "ran" not in slurm.lines("ill")
    slurm.submit("any", "echo", "ran", flags=[*flags, "--check-gpus=off"])
    slurm.wait_for_end("any", 0)
    slurm.submit("none", "echo", "ran", flags=["--workers=2"])
    slurm.wait_for_end("none", 0)


def test_a_node_whose_gpu_is_measured_slow_is_named_before_the_command_starts(slurm):
    def measure(script):
        slurm.stand_in("dtrain-trainer", f"[ $1 = check-gpus ] || exit 3\n{script}")
    flags = ["--gpus=1", "--check-gpus=measure"]
    measure("echo 'GPU 0 (H100): 300 TFLOP/s of bf16'; echo 'fault: GPU 0 (H100): it is slow'; exit 1")
    slurm.submit("slow", "echo", "ran", flags=flags)
    cause = slurm.wait_for_end("slow", EXIT_JOB_FAILED)["cause"]
    assert " has a faulty GPU: GPU 0 (H100): it is slow; exclude the node" in cause["lastStderr"][-1]
    assert "ran" not in slurm.lines("slow")
    slurm.submit("on", "echo", "ran", flags=["--gpus=1"])
    slurm.wait_for_end("on", 0)
    measure("echo 'check-gpus: no CUDA plug-in' >&2; exit 2")
    slurm.submit("none", "echo", "ran", flags=flags)
    slurm.wait_for_end("none", 0)
    told = [line for line in slurm.lines("none") if line.startswith("dtrain: ")]
    assert len(told) == 1 and told[0].endswith(
        ": the GPUs were not measured (--check-gpus=measure): check-gpus: no CUDA plug-in")


def test_roles_with_and_without_gpus_see_their_own(slurm):
    slurm.submit("mixed", "sh", "-c", "echo ${LOCAL_RANK-none} [$CUDA_VISIBLE_DEVICES]",
                 flags=["tfjob", "--workers=2", "--gpus=1", "--ps=1"])
    slurm.wait_for_end("mixed", 0)
    seen = [slurm.lines("mixed", "-i", instance)[0] for instance in ("worker-0", "worker-1", "ps-0")]
    assert seen[2] == "none []" and {line.split()[0] for line in seen[:2]} == {"0"}
    assert all("," not in line for line in seen)


def test_parameter_servers_and_an_evaluator_have_no_rank(slurm):
    slurm.submit("roles", "sh", "-c", "echo ${RANK-none} $TF_CONFIG",
                 flags=["tfjob", "--workers=2", "--ps=1", "--evaluator"])
    slurm.wait_for_end("roles", 0)
    ranks = {}
    for instance in ["worker-0", "worker-1", "ps-0", "evaluator-0"]:
        rank, config = slurm.lines("roles", "-i", instance)[0].split(" ", 1)
        ranks[instance] = rank
        cluster = json.loads(config)["cluster"]
        assert (len(cluster["worker"]), len(cluster["ps"])) == (2, 1)
        assert "evaluator" not in cluster
    assert ranks == {"worker-0": "0", "worker-1": "1", "ps-0": "none", "evaluator-0": "none"}


def test_the_bundled_trainer_trains_across_nodes(slurm):
    slurm.env["PATH"] = f"{slurm.build.bin}:{slurm.env['PATH']}"
    slurm.dtrain("submit", "--name=mlp", "--workers=3", "--worker-cpu=8", "--", "--epochs=1")
    slurm.wait_for_end("mlp", 0)
    assert any("held-out accuracy" in line for line in slurm.lines("mlp"))


def test_a_job_that_waits_says_why_in_words(slurm, slurm_cluster):
    fill_all_nodes(slurm)
    slurm.submit("waits", "true")
    until(lambda: "(Resources)" in slurm.get("waits")["reason"], "Slurm says why")
    assert "waits for nodes to become free" in slurm.dtrain("get", "waits").out
    slurm.dtrain("delete", "hog")
    slurm.wait_for_end("waits", 0)


def test_a_list_says_what_runs_and_what_waits(slurm):
    fill_all_nodes(slurm)
    slurm.submit("waits", "true")
    states = {job["name"]: job["status"] for job in slurm.dtrain("list", "-o", "json").json()}
    assert states == {"hog": "RUNNING", "waits": "PENDING"}


def test_a_held_job_starts_when_it_is_resumed(slurm):
    fill_all_nodes(slurm)
    slurm.submit("held", "echo", "ran")
    slurm.dtrain("suspend", "held")
    until(lambda: slurm.get("held")["status"] == "SUSPENDED", "it is held")
    slurm.dtrain("delete", "hog")
    slurm.dtrain("resume", "held")
    slurm.wait_for_end("held", 0)
    assert slurm.lines("held") == ["ran"]


def test_a_job_that_runs_gives_its_nodes_back_while_it_is_suspended(slurm, slurm_cluster):
    slurm.submit("low", "sh", "-c", "echo run $DTRAIN_RESTART_COUNT; exec sleep 600",
                 flags=["--workers=4", "--worker-cpu=8", "--preemptible"])
    slurm.running("low")
    assert "suspended" in slurm.dtrain("suspend", "low").out
    until(lambda: slurm.get("low")["status"] == "SUSPENDED", "it waits, held")
    slurm.submit("high", "true", flags=["--workers=4", "--worker-cpu=8"])
    slurm.wait_for_end("high", 0)
    slurm.dtrain("resume", "low")
    assert slurm.running("low", seconds=150)["restarts"] == 1  # Slurm takes up to a minute to look at it again.
    until(lambda: slurm.lines("low", "-i", "worker-0") == ["run 1"], "its second run prints")


def test_a_job_that_runs_and_may_not_be_queued_anew_is_stopped_where_it_is(slurm, slurm_cluster):
    slurm.submit("fixed", "sleep", "600")
    slurm.running("fixed")
    slurm.dtrain("suspend", "fixed")
    until(lambda: slurm.get("fixed")["status"] == "SUSPENDED", "it is stopped")
    slurm.dtrain("resume", "fixed")
    assert slurm.running("fixed")["restarts"] == 0
    tools = slurm.folder / "tools"
    tools.mkdir()
    (tools / "scontrol").write_text("#!/bin/sh\necho slurm_suspend error: Access/permission denied >&2;"
                                    " exit 1\n")
    (tools / "scontrol").chmod(0o755)
    result = slurm.dtrain("suspend", "fixed", expect=EXIT_ENGINE,
                          env={"PATH": f"{tools}:{slurm.env['PATH']}"})
    assert "permission denied" in result.err and "--preemptible" in result.err
    assert result.err.count("\n") == 1


def test_a_job_cancelled_in_slurm_says_so(slurm, slurm_cluster):
    assert "scancel" in cancel_in_slurm(slurm, slurm_cluster, "cancelled", "--workers=2").err


def forgotten(slurm, name, accounting, notes_ends=True):
    """The job as it is once Slurm has forgotten it: by stand-ins for what is asked. The cluster notes
    jobs that have ended in a file, where `notes_ends`."""
    tools = slurm.folder / "later"
    tools.mkdir(exist_ok=True)
    number = of_slurm(slurm, name)
    scripts = {"squeue": 'case "$*" in *--jobs=*) ;; *) exit 0 ;; esac\n'
                         "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1",
               "sacct": accounting.replace("ID", number),
               "scontrol": 'exec /usr/bin/scontrol "$@"' if notes_ends else "exit 1"}
    for tool, text in scripts.items():
        (tools / tool).write_text(f"#!/bin/sh\n{text}\n")
        (tools / tool).chmod(0o755)
    env = {"PATH": f"{tools}:{slurm.env['PATH']}"}
    job = slurm.dtrain("get", name, "-o", "json", env=env).json()
    listed = slurm.dtrain("list", "-o", "json", env=env).json()
    assert [(each["name"], each["status"]) for each in listed] == [(name, job["status"])]
    return job, slurm.dtrain("explain", name, env=env).out


def without_last_words(slurm, slurm_cluster, name):
    """Of a job whose node was lost with what Slurm and the script would have said there."""
    number = of_slurm(slurm, name)
    until(lambda: slurm_cluster.call("squeue", "--noheader", "--states=all", f"--jobs={number}",
                                     "--format=%T").strip() == "CANCELLED", "its script has ended")
    folder = slurm.state / "dtrain/slurm/default" / name
    (folder / "slurm.log").write_text("")
    runs = folder / "runs"  # Its script may have said the end before Slurm ended it.
    lines = runs.read_text().splitlines(keepends=True)
    runs.write_text("".join(line for line in lines if not line.startswith("end ")))


def test_what_slurm_has_forgotten_is_what_it_said_as_it_ended_the_job(slurm, slurm_cluster):
    cancel_in_slurm(slurm, slurm_cluster, "old")
    job, text = forgotten(slurm, "old", "echo 'Slurm accounting storage is disabled' >&2; exit 1")
    assert job["reason"] == "cancelled in Slurm (scancel)" and "failed" in text
    log = slurm.state / "dtrain/slurm/default/old/slurm.log"
    text = log.read_text()
    for why, words in [(" DUE TO TIME LIMIT", "time limit"),
                       (" DUE TO PREEMPTION", "higher priority"),
                       (" DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS", "node")]:
        log.write_text(re.sub(r"(JOB .* CANCELLED AT \S+)", rf"\1{why}", text))
        job, _ = forgotten(slurm, "old", "exit 1")
        assert words in job["reason"] and job["endTimestamp"] >= job["startTimestamp"] > 0


def test_what_slurm_has_forgotten_is_asked_of_its_accounting(slurm, slurm_cluster):
    cancel_in_slurm(slurm, slurm_cluster, "old")
    without_last_words(slurm, slurm_cluster, "old")
    job, text = forgotten(slurm, "old", "echo 'ID|TIMEOUT|TIMEOUT|$(date +%s)|20|$(($(date +%s) - 3600))"
                          "|node1|batch|'".replace("'", '"'))
    assert job["status"] == "FAILED" and "time limit" in text and "failed 60m ago" in text
    disabled = "echo 'Slurm accounting storage is disabled' >&2; exit 1"
    job, text = forgotten(slurm, "old", disabled)
    assert job["reason"] == "cancelled in Slurm (scancel)" and job["endTimestamp"] > 0
    job, text = forgotten(slurm, "old", disabled, notes_ends=False)
    assert job["status"] == "FAILED" and "no record of this job" in text
    job, text = forgotten(slurm, "old", "echo 'ID|RUNNING|RUNNING|10|20|Unknown|node1|batch|'")
    assert job["status"] == "FAILED" and "no record of this job" in text


def test_a_job_that_has_ended_keeps_its_end_when_slurm_has_forgotten_it(slurm):
    slurm.submit("done", "sh", "-c", "exit 5")
    slurm.dtrain("wait", "done", expect=EXIT_JOB_FAILED)
    job, text = forgotten(slurm, "done", "echo 'ID|COMPLETED|COMPLETED|1|2|3|node1|batch|'")
    assert job["cause"]["exitCode"] == 5
    assert "worker-0 (rank 0) on node1 ended with exit code 5" in text


def test_a_time_limit_is_slurms(slurm):
    """Slurm counts in minutes."""
    plan = slurm.dtrain("submit", "--dry-run", "--name=late", "--running-timeout=90m", "--",
                        "true").out
    assert "#SBATCH --time=0-01:30:00" in plan


def test_logs_follow_from_run_to_run(slurm):
    slurm.submit("again", "sh", "-c",
                 "echo run $DTRAIN_RESTART_COUNT; sleep 0.5; [ $DTRAIN_RESTART_COUNT = 1 ]",
                 flags=["--max-restarts=1"])
    assert slurm.lines("again", "-f", "-i", "worker-0") == ["run 0", "run 1"]


def test_the_ranks_lines_come_in_the_order_of_their_times(slurm):
    """What was printed in one second may stand in any order."""
    slurm.submit("turns", "sh", "-c", "sleep $((RANK * 3)); echo $RANK a; sleep 5; echo $RANK b",
                 flags=["--workers=2"])
    slurm.wait_for_end("turns", 0)
    assert slurm.lines("turns") == ["worker-0 | 0 a", "worker-1 | 1 a", "worker-0 | 0 b",
                                    "worker-1 | 1 b"]
    assert slurm.lines("turns", "--tail=1") == ["worker-0 | 0 b", "worker-1 | 1 b"]


def test_files_that_a_rank_makes_have_the_users_own_mask(slurm):
    slurm.submit("mask", "sh", "-c", "umask; ls -ld $DTRAIN_TEST_FOLDER",
                 flags=[f"--env=DTRAIN_TEST_FOLDER={slurm.state}/dtrain/slurm/default/mask"])
    slurm.wait_for_end("mask", 0)
    mask, folder = slurm.lines("mask", "-i", "worker-0")
    assert mask == "0022" and folder.startswith("drwx------")


def test_secrets_are_in_the_rank_and_not_in_the_script(slurm):
    (slurm.folder / "env").write_text("TOKEN=open sesame\n")
    flags = ["--env-file=env"]
    assert "sesame" not in slurm.dtrain("submit", "--dry-run", *flags, "--", "true").out
    slurm.submit("secret", "sh", "-c", "echo $TOKEN", flags=flags)
    slurm.wait_for_end("secret", 0)
    assert slurm.lines("secret", "-i", "worker-0") == ["open sesame"]
    folder = slurm.state / "dtrain/slurm/default/secret"
    assert "sesame" not in (folder / "script.sbatch").read_text()
    assert (folder / "secrets").stat().st_mode & 0o077 == 0


def test_sbatch_takes_the_plan_as_it_stands(slurm, slurm_cluster):
    plan = slurm.dtrain("submit", "--name=byhand", "--workers=2", "--dry-run", "--", "sh", "-c",
                        "echo $RANK of $WORLD_SIZE").out
    path = slurm.folder / "plan.sbatch"
    path.write_text(plan)
    slurm.run(["sbatch", "--wait", "--output=/dev/null", path])
    out = slurm.state / "dtrain/slurm/default/byhand/0/worker-1.out"
    assert out.read_text() == "1 of 2\n"


@pytest.mark.parametrize("flags,words", [
    (["--queue=nosuch"], "--partition=nosuch"),
    (["--partition=nosuch"], "--partition=nosuch"),
    (["--constraint=nosuch"], "--constraint=nosuch"),
    (["--nodelist=node9"], "--nodelist=node9"),
    (["--exclude=node9"], "--exclude=node9"),
    (["--reservation=nosuch"], "--reservation=nosuch"),
    (["--sbatch-arg=--licenses=nosuch"], "license"),
    (["--gpus=5"], "--gpus-per-task=5"),
])
def test_what_slurm_refuses_is_said_in_its_own_words_and_leaves_nothing(slurm, flags, words):
    result = slurm.dtrain("submit", "--name=bad", *flags, "--", "true", expect=EXIT_ENGINE)
    assert words in result.err and result.err.count("\n") == 1
    assert slurm.dtrain("list", "-o", "name").out == ""
    assert not (slurm.state / "dtrain/slurm/default/bad").exists()


@pytest.mark.parametrize("flags,words", [
    (["--time=2 fortnights"], "--time=2 fortnights"),
    (["--signal=B:USR1@9"], "--signal=B:USR1@9"),
    (["--sbatch-arg=--array=1-3"], "--array"),
    (["--sbatch-arg=-x"], "--sbatch-arg=-x"),
    (["--partition=high", "--queue=batch"], "--queue"),
])
def test_what_no_slurm_takes_is_a_usage_error(slurm, flags, words):
    result = slurm.dtrain("submit", *flags, "--", "true", expect=EXIT_USAGE)
    assert words in result.err and result.err.count("\n") == 1


def test_slurms_own_options_are_the_scripts(slurm, slurm_cluster):
    slurm.submit("options", "sleep", "600",
                 flags=["--partition=high", "--account=team", "--time=1-2", "--exclude=node[1-2]",
                        "--nodelist=node4", "--sbatch-arg=--mail-user=a b@example.org",
                        "--sbatch-arg=--mail-type=STAGE_OUT",
                        "--sbatch-arg=--ntasks-per-node=1"])
    slurm.running("options")
    job = slurm_cluster.call("scontrol", "show", "job", of_slurm(slurm, "options"))
    for words in ["Partition=high", "Account=team", "TimeLimit=1-02:00:00", "NodeList=node4",
                  "ExcNodeList=node[1-2]", "MailUser=a b@example.org", "NtasksPerN:B:S:C=1:"]:
        assert words in job, words


def test_a_constraint_and_a_reservation_choose_the_node(slurm, slurm_cluster):
    def mark_node(feature):
        slurm_cluster.call("scontrol", "update", "nodename=node3", f"availablefeatures={feature}",
                           f"activefeatures={feature}")

    mark_node("a100")
    slurm_cluster.call("scontrol", "create", "reservation", "reservationname=ours", "starttime=now",
                       "duration=60", f"users={getpass.getuser()}", "nodes=node4")
    try:
        for name, flag, node in [("marked", "--constraint=a100", "node3"),
                                 ("kept", "--reservation=ours", "node4")]:
            slurm.submit(name, "sh", "-c", "echo $SLURMD_NODENAME", flags=[flag])
            slurm.wait_for_end(name, 0)
            assert slurm.lines(name) == [node]
    finally:
        slurm_cluster.call("scontrol", "delete", "reservationname=ours")
        mark_node("plain")


def test_a_controller_that_is_not_there_is_said(slurm):
    bad = slurm.folder / "slurm.conf"
    text = open(slurm.env["SLURM_CONF"]).read()
    bad.write_text(re.sub(r"^SlurmctldPort=.*$", "SlurmctldPort=1", text, flags=re.M)
                   + "MessageTimeout=2\n")
    result = slurm.dtrain("submit", "--name=x", "--", "true", expect=EXIT_ENGINE,
                          env={"SLURM_CONF": str(bad)})
    assert "controller" in result.err and result.err.count("\n") == 1
    assert "scontrol ping says: Slurmctld(primary)" in result.err
    slurm.submit("there", "sleep", "600")
    for verb in ["get", "there"], ["list"], ["delete", "there"], ["suspend", "there"]:
        result = slurm.dtrain(*verb, expect=EXIT_ENGINE, env={"SLURM_CONF": str(bad)})
        assert "scontrol ping says" in result.err and result.err.count("\n") == 1
    assert slurm.get("there")["status"] in ("PENDING", "RUNNING")


def test_a_job_that_nobody_has_is_told_in_time_where_slurms_configuration_is_missing(slurm):
    missing = {"SLURM_CONF": str(slurm.folder / "missing.conf")}  # For which squeue waits a minute.
    result = slurm.dtrain("get", "nobodys", expect=EXIT_NOT_FOUND, env=missing, seconds=30)
    assert "no job 'nobodys'" in result.err


def test_slurm_that_is_not_installed_is_said(home):
    tools = home.folder / "bin"
    tools.mkdir()
    for name in ("sh", "env", "cat", "mkdir", "head", "rm", "printf"):
        (tools / name).symlink_to(f"/usr/bin/{name}")
    result = home.dtrain("submit", "-b", "slurm", "--name=x", "--", "true", expect=EXIT_ENGINE,
                         env={"PATH": str(tools)})
    assert "not in PATH" in result.err and "--login-host" in result.err


def test_what_slurm_has_no_use_for_is_refused_by_name(slurm):
    result = slurm.dtrain("submit", "--image=x", "--image-pull-policy=Always", "--", "true",
                          expect=EXIT_USAGE)
    assert "--image-pull-policy" in result.err and "slurm" in result.err


def test_exec_runs_on_the_ranks_node_with_its_variables_and_folder(slurm):
    slurm.submit("beside", "sleep", "600",
                 flags=["--workers=2", "--worker-cpu=8", "--worker-memory=4Gi", "--gpus=2",
                        "--env=WORDS=two  words", "--env=folder=/nowhere"])
    slurm.running("beside")
    job = slurm.get("beside")
    for rank, each in enumerate(job["instances"]):
        result = slurm.dtrain(
            "exec", "beside", "-i", each["name"], "--", "sh", "-c",
            'echo "$RANK|$WORDS|$PWD|$SLURMD_NODENAME|$CUDA_VISIBLE_DEVICES|$1"; exit 5', "sh",
            "a  'b'", expect=5)
        assert result.out == f"{rank}|two  words|{slurm.folder}|{each['node']}|0,1|a  'b'\n"
    assert slurm.run([slurm.dtrain_path, "exec", "beside", "--", "cat"], stdin="typed").out == "typed"
    slurm.dtrain("delete", "beside")
    slurm.submit("over", "true")
    slurm.wait_for_end("over", 0)
    result = slurm.dtrain("exec", "over", "--", "true", expect=EXIT_ENGINE)
    assert result.err == "dtrain exec: job over has ended (SUCCEEDED); nothing to exec into\n"


def test_attach_is_a_shell_on_this_terminal(slurm):
    slurm.submit("shell", "sleep", "600", flags=["--env=GREETING=hello"])
    slurm.running("shell")
    with pexpect.spawn(slurm.dtrain_path, ["attach", "shell"], env=slurm.env, encoding="utf-8",
                       timeout=60) as terminal:
        terminal.sendline("echo $GREETING there; test -t 0 && echo on a \"\"terminal; exit 7")
        terminal.expect("hello there")
        terminal.expect("on a terminal")
        terminal.expect(pexpect.EOF)
        terminal.wait()
    assert terminal.exitstatus == 7


def test_a_job_cannot_be_scaled_and_says_what_can_be_done(slurm):
    slurm.submit("fixed", "sleep", "600")
    result = slurm.dtrain("scale", "fixed", "--workers=2", expect=EXIT_USAGE)
    assert "dtrain clone" in result.err and result.err.count("\n") == 1


def test_explain_says_when_slurm_expects_to_start_a_job(slurm):
    fill_all_nodes(slurm, "--time=10")
    slurm.submit("waits", "true", flags=["--time=1"])
    text = until(lambda: (out := slurm.dtrain("explain", "waits").out) and "expected" in out and out,
                 "Slurm has an estimate")
    assert re.search(r"expected to start at \S+ \S+, in (9m|10m)", text)


def test_nodes_are_shown_with_their_gpus(slurm):
    slurm.submit("busy", "sleep", "600", flags=["--gpus=3"])
    slurm.running("busy")
    nodes = slurm.dtrain("top", "node", "-o", "json").json()
    assert [node["name"] for node in nodes] == ["node1", "node2", "node3", "node4"]
    assert [node["totalGPUs"] for node in nodes] == [4] * 4
    assert sum(node["requestedGPUs"] for node in nodes) == 3


def test_check_says_what_it_found(slurm):
    out = slurm.dtrain("check").out
    assert "slurm" in out and "batch" in out


def test_a_clone_is_the_same_job(slurm):
    slurm.submit("first", "echo", "hello")
    slurm.wait_for_end("first", 0)
    slurm.dtrain("clone", "first", "--name=second")
    slurm.wait_for_end("second", 0)
    assert slurm.lines("second", "-i", "worker-0") == ["hello"]


def test_top_shows_what_each_instance_uses(slurm):
    slurm.submit("busy", "sh", "-c", "[ $RANK = 1 ] && exec sleep 600; while :; do :; done",
                 flags=["--workers=2", "--worker-cpu=8", "--gpus=1"])
    slurm.running("busy")
    used = slurm.dtrain("top", "job", "busy", "-o", "json").json()
    assert [each["name"] for each in used] == ["worker-0", "worker-1"]
    assert [each["node"] for each in used] == ["node1", "node2"]
    assert used[0]["cpus"] > 0.1 > used[1]["cpus"] and all(each["memory"] > 100_000 for each in used)


def test_what_slurm_itself_said_of_a_job_is_shown_with_its_events(slurm):
    slurm.submit("bad", "sh", "-c", "exit 7", flags=["--workers=2"])
    slurm.wait_for_end("bad")
    events = slurm.dtrain("get", "bad", "--events", "-o", "json").json()["events"]
    assert any(each["source"] == "slurm.log" and "Exited with exit code 7" in each["message"] for each in events)


def rests(slurm):
    """No process of the home's jobs begins or ends for a while."""
    before = set(slurm.processes())
    time.sleep(3)
    return set(slurm.processes()) == before


def test_nothing_of_ours_is_started_while_a_rank_is_silent(slurm):
    slurm.submit("silent", "sleep", "600", flags=["--workers=2"])
    slurm.running("silent")
    until(lambda: rests(slurm), "its processes are the same ones")


def test_nothing_of_ours_is_started_while_ranks_wait_for_one_another(slurm):
    """The first looks at its node's GPUs, for as long as that takes."""
    os.mkfifo(slurm.folder / "never")
    slurm.stand_in("nvidia-smi", f"read -r _ <{slurm.folder}/never")
    slurm.submit("early", "true", flags=["--workers=2", "--gpus=1"])
    slurm.wait_for_file(slurm.state / "dtrain/slurm/default/early/0/worker-1.start")
    until(lambda: rests(slurm) and slurm.status("early") == "PENDING", "its processes are the same ones")


def test_a_job_whose_nodes_slurm_never_tells_fails_and_says_so(slurm):
    slurm.stand_in("scontrol", '[ "$2" != node ] || exit 1\nexec /usr/bin/scontrol "$@"')
    slurm.stand_in("sleep", "exec /usr/bin/sleep 0.01")  # Between two questions.
    slurm.submit("lost", "true")
    cause = slurm.wait_for_end("lost", EXIT_JOB_FAILED)["cause"]
    assert "cannot look up the job's nodes" in cause["lastStderr"][-1]
