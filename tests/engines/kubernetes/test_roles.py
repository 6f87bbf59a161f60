"""Jobs whose instances are not all workers."""
import json
import signal

import yaml

from engines.kubernetes.fixtures import BUSYBOX, until
from harness import EXIT_JOB_FAILED

WHO = 'echo "$ROLE_NAME $ROLE_RANK of $ROLE_WORLD_SIZE, rank ${RANK-none} of ${WORLD_SIZE-none}"'


def test_parameter_servers_and_the_evaluator_end_when_the_ranks_have_succeeded(kube):
    kube.dtrain("submit", "tfjob", "--name=tf", BUSYBOX, "--workers=2", "--ps=1", "--chief",
                "--evaluator", "--success-policy=AllWorkers", "--", "sh", "-c",
                f"{WHO}; case $ROLE_NAME in ps|evaluator) exec sleep 600;; esac; sleep 1")
    job = kube.wait_for_end("tf", 0)
    assert job["trainer"] == "TFJOB"
    assert [each["name"] for each in job["instances"]] == [
        "chief-0", "worker-0", "worker-1", "ps-0", "evaluator-0"]
    states = [each["status"] for each in job["instances"]]
    assert states[:3] == ["Succeeded"] * 3
    assert set(states[3:]) <= {"Succeeded", "Terminated"}  # Being ended, or ended with 0 by then.
    assert kube.lines("tf", "-i", "chief-0") == ["chief 0 of 1, rank 0 of 3"]
    assert kube.lines("tf", "-i", "worker-1") == ["worker 1 of 2, rank 2 of 3"]


def test_a_parameter_server_that_fails_is_the_cause(kube):
    kube.dtrain("submit", "tfjob", "--name=psfail", BUSYBOX, "--workers=1", "--ps=2", "--",
                "sh", "-c", "[ $ROLE_NAME$ROLE_RANK = ps1 ] || exec sleep 600; echo lost; exit 4")
    kube.dtrain("wait", "psfail", expect=EXIT_JOB_FAILED)
    cause = kube.get("psfail")["cause"]
    assert (cause["instance"], cause["exitCode"], cause["lastStderr"]) == ("ps-1", 4, ["lost"])


def test_the_first_of_a_pytorchjob_is_its_master(kube):
    kube.dtrain("submit", "pytorchjob", "--name=torch", BUSYBOX, "--workers=2",
                "--nproc-per-node=2", "--", "sh", "-c",
                "echo $PET_NODE_RANK of $PET_NNODES at $PET_MASTER_ADDR; "
                "echo $TF_CONFIG > /dev/null")
    job = kube.wait_for_end("torch", 0)
    assert [instance["name"] for instance in job["instances"]] == ["master-0", "worker-0"]
    assert kube.lines("torch", "-i", "worker-0") == ["1 of 2 at torch-worker-0.torch"]


def test_tf_config_names_hosts_that_resolve(kube):
    kube.dtrain("submit", "tfjob", "--name=conf", BUSYBOX, "--workers=1", "--ps=1",
                "--ps-port=4321", "--", "sh", "-c", "echo $TF_CONFIG")
    kube.wait_for_end("conf", 0)
    config = json.loads(kube.lines("conf", "-i", "worker-0")[0])
    assert config == {"cluster": {"worker": ["conf-worker-0.conf:2222"],
                                  "ps": ["conf-worker-1.conf:4321"]},
                      "task": {"type": "worker", "index": 0}}


def test_roles_start_one_after_another_where_that_is_asked(kube):
    kube.dtrain("submit", "tfjob", "--name=turn", BUSYBOX, "--workers=2", "--ps=1", "--chief",
                "--role-sequence=PS,Chief", "--success-policy=AllWorkers", "--", "sh", "-c",
                "read up _ </proc/uptime; echo $up; case $ROLE_NAME in ps) exec sleep 600;; esac; sleep 4")
    lines = kube.dtrain("logs", "-f", "turn").out.splitlines()
    started = {line.split()[0]: float(line.split()[-1]) for line in lines}
    assert started["ps-0"] < started["chief-0"] < min(started["worker-0"], started["worker-1"])
    kube.wait_for_end("turn", 0)


def test_who_waits_for_a_role_says_so(kube):
    kube.dtrain("submit", "tfjob", "--name=held", BUSYBOX, "--ps=1", "--ps-selector=nowhere=1",
                "--role-sequence=PS", "--", "true")
    until(lambda: "no node matches" in kube.get("held")["reason"], "the server's reason")
    kube.dtrain("submit", "tfjob", "--name=behind", BUSYBOX, "--ps=1", "--role-sequence=Worker",
                "--", "sh", "-c", "sleep 5; [ $ROLE_NAME = worker ]")
    states = kube.dtrain("get", "behind", "-w", "-o", "json").out  # All that it was, to its end.
    assert "ps-0: waits for the roles that --role-sequence starts first" in states
    kube.wait_for_end("behind", 0)


SERVER = "case $ROLE_NAME in ps|evaluator) exec sleep 600;; esac; "


def active(cluster, name):
    """Of each Job, the Pods that have not ended."""
    items = json.loads(cluster.kubectl("get", "jobs", "-l", f"dtrain/job={name}", "-o", "json"))["items"]
    return {item["metadata"]["name"]: item["status"].get("active", 0) for item in items}


def test_servers_that_ask_for_less_than_the_workers_end_with_them(kube, cluster):
    kube.dtrain("submit", "tfjob", "--name=few", BUSYBOX, "--gpus=1", "--workers=2", "--ps=1",
                "--evaluator", "--success-policy=AllWorkers", "--", "sh", "-c",
                f"{WHO}; echo $TF_CONFIG; {SERVER} sleep 1")
    job = kube.wait_for_end("few", 0)
    assert [instance["name"] for instance in job["instances"]] == [
        "worker-0", "worker-1", "evaluator-0", "ps-0"]
    assert [instance["requestGPUs"] for instance in job["instances"]] == [1, 1, 1, 0]
    lines = kube.lines("few", "-i", "worker-1")
    assert lines[0] == "worker 1 of 2, rank 1 of 2"
    assert json.loads(lines[1])["cluster"]["ps"] == ["few-ps-0.few:2222"]
    [row] = [row for row in kube.dtrain("list", "-o", "json").json() if row["name"] == "few"]
    assert (row["status"], row["requestGPUs"]) == ("SUCCEEDED", 3)
    until(lambda: active(cluster, "few") == {"few-worker": 0, "few-ps": 0}, "all have ended", 60)


def test_a_server_of_its_own_job_that_fails_is_the_cause_and_ends_the_workers(kube, cluster):
    kube.dtrain("submit", "tfjob", "--name=fell", BUSYBOX, "--gpus=1", "--workers=1", "--ps=2", "--",
                "sh", "-c", "[ $ROLE_NAME$ROLE_RANK = ps1 ] || exec sleep 600; echo lost; exit 4")
    kube.dtrain("wait", "fell", expect=EXIT_JOB_FAILED)
    cause = kube.get("fell")["cause"]
    assert (cause["instance"], cause["exitCode"], cause["lastStderr"]) == ("ps-1", 4, ["lost"])
    until(lambda: active(cluster, "fell")["fell-worker"] == 0, "the workers have ended", 60)


def test_a_job_with_servers_apart_is_looked_into_suspended_and_deleted_whole(kube, cluster):
    kube.dtrain("submit", "tfjob", "--name=apart", BUSYBOX, "--gpus=1", "--workers=1", "--ps=1",
                "--evaluator", "--evaluator-cpu=200m", "--", "sh", "-c", f"{WHO}; exec sleep 600")
    kube.running("apart", 60)
    assert [each["name"] for each in kube.get("apart")["instances"]] == [
        "worker-0", "ps-0", "evaluator-0"]
    until(lambda: kube.lines("apart", "-i", "evaluator-0") == [
        "evaluator 0 of 1, rank none of none"], "the evaluator prints")
    # A Job's count of Pods that are ready lags a little.
    until(lambda: [row["status"] for row in kube.dtrain("list", "-o", "json").json()
                   if row["name"] == "apart"] == ["RUNNING"], "list shows it running")
    until(lambda: kube.lines("apart", "-i", "ps-0") == ["ps 0 of 1, rank none of none"],
          "the server prints")
    assert kube.dtrain("exec", "apart", "-i", "ps-0", "--", "sh", "-c", "echo $ROLE_NAME").out == "ps\n"
    kube.dtrain("suspend", "apart")
    until(lambda: active(cluster, "apart") == {"apart-worker": 0, "apart-ps": 0, "apart-evaluator": 0},
          "it has stopped", 60)
    kube.dtrain("resume", "apart")
    kube.running("apart", 60)
    kube.dtrain("delete", "apart")
    until(lambda: active(cluster, "apart") == {}, "its Jobs are gone", 60)


def test_a_chief_that_asks_for_other_than_the_workers_is_rank_0_and_ends_them(kube, cluster):
    kube.dtrain("submit", "tfjob", "--name=chief", BUSYBOX, "--chief", "--gpus=1", "--chief-cpu=200m",
                "--workers=2", "--ps=1", "--", "sh", "-c",
                f"{WHO}; echo $MASTER_ADDR; [ $ROLE_NAME = chief ] || exec sleep 600; sleep 3")
    job = kube.wait_for_end("chief", 0)
    assert [(each["name"], each["requestGPUs"], each["chief"]) for each in job["instances"]] == [
        ("chief-0", 1, True), ("worker-0", 1, False), ("worker-1", 1, False), ("ps-0", 0, False)]
    assert kube.lines("chief", "-i", "chief-0") == ["chief 0 of 1, rank 0 of 3", "chief-chief-0.chief"]
    [row] = [row for row in kube.dtrain("list", "-o", "json").json() if row["name"] == "chief"]
    assert (row["status"], row["requestGPUs"]) == ("SUCCEEDED", 3)
    until(lambda: set(active(cluster, "chief").values()) == {0}, "all have ended", 60)


def test_where_all_decide_a_chief_of_its_own_job_and_its_workers_have_to_succeed(kube):
    flags = ["tfjob", BUSYBOX, "--chief", "--chief-cpu=200m", "--success-policy=AllWorkers",
             "--workers=2", "--", "sh", "-c"]
    kube.dtrain("submit", *flags[:1], "--name=both", *flags[1:], f"{WHO}; [ $RANK = 0 ] || sleep 2")
    kube.wait_for_end("both", 0)
    assert kube.lines("both", "-i", "worker-1") == ["worker 1 of 2, rank 2 of 3"]
    kube.dtrain("submit", *flags[:1], "--name=one", *flags[1:], "[ $RANK != 2 ] || { sleep 2; exit 5; }; sleep 600")
    kube.dtrain("wait", "one", expect=EXIT_JOB_FAILED)
    cause = kube.get("one")["cause"]
    assert (cause["instance"], cause["rank"], cause["exitCode"]) == ("worker-1", 2, 5)


def test_servers_that_nobody_looks_at_end_when_no_rank_is_there_any_more(kube):
    """Their script, with time and the cluster's names stood in for."""
    plan = kube.dtrain("submit", "tfjob", "--name=alone", BUSYBOX, "--gpus=1", "--ps=1",
                       "--dry-run", "--", "sleep", "600").out
    [text] = [each["data"]["ps.sh"] for each in yaml.safe_load_all(plan)
              if "ps.sh" in each.get("data", {})]
    script = kube.folder / "ps.sh"
    script.write_text(text)
    fakes = kube.folder / "bin"
    fakes.mkdir()
    (fakes / "sleep").write_text('#!/bin/sh\n[ "$1" = 600 ] && exec /bin/sleep 600\nexec /bin/sleep 0.02\n')
    # The rank's name is known for the first five times, and the cluster's own always.
    (fakes / "getent").write_text(f"""#!/bin/sh
echo "$2" >>{kube.folder}/asked
case $2 in alone-worker*) [ "$(grep -c worker {kube.folder}/asked)" -le 5 ] ;; esac
""")
    for fake in fakes.iterdir():
        fake.chmod(0o755)
    result = kube.run(["sh", script], env={"PATH": f"{fakes}:/usr/bin:/bin", "JOB_COMPLETION_INDEX": "0"},
                      expect=-signal.SIGTERM)
    assert "no rank has had an address for 5 minutes" in result.err
    asked = (kube.folder / "asked").read_text().split()
    assert asked.count("kubernetes.default.svc") == 30 and len(asked) >= 60
