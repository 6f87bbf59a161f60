"""Job types and roles: what starts, who is told what, and whose end is the job's."""
import json
import os
import re

import pytest

import idx_data
from harness import EXIT_JOB_FAILED, EXIT_USAGE

# The line that Arena's users know, as it stands in their notes.
ARENA_LINE = [
    "etjob", "--name=deepspeed-helloworld", "--gpus=1", "--workers=3",
    "--image=registry/deepspeed:hello-deepspeed",
    "deepspeed /workspace/train_bert_ds.py --checkpoint_dir /data/deepspeed_data"]



def instances(home, name):
    return {i["name"]: i for i in home.get(name)["instances"]}


def test_the_bundled_trainer_with_parameter_servers(home, tmp_path):
    data = idx_data.write(tmp_path)
    home.dtrain("submit", "--name=served", "--ps=2", "--workers=4", "--wait", "--",
                f"--data={data}", "--steps=20", "--log-every=20")
    job = home.get("served")
    assert job["status"] == "SUCCEEDED" and job["chiefName"] == "worker-0"
    assert list(instances(home, "served")) == [
        "worker-0", "worker-1", "worker-2", "worker-3", "ps-0", "ps-1"]
    text = home.dtrain("logs", "served").out
    assert "2 parameter servers" in text and "ps 1: step 20" in text


def test_an_instance_is_found_by_its_long_name_too(home):
    home.submit("long", "echo", "here", flags=["--workers=2"])
    home.dtrain("wait", "long")
    assert home.lines("long", "-i", "long-worker-1") == ["here"]


def test_tensorflows_roles_are_told_who_they_are_and_end_with_the_workers(home):
    show = ("echo $ROLE_NAME $ROLE_RANK ${RANK-none} ${WORLD_SIZE-none} $TF_CONFIG; "
            "case $ROLE_NAME in ps) exec sleep 600 ;; evaluator) sleep 0.5; echo scored ;; esac")
    home.dtrain("submit", "tfjob", "--name=roles", "--chief", "--evaluator", "--ps=1",
                "--success-policy=AllWorkers", "--workers=2", "--role-sequence=PS,Worker", "--wait", show)
    job = home.get("roles")
    assert job["trainer"] == "TFJOB" and job["chiefName"] == "chief-0"
    told = {}
    for name in instances(home, "roles"):
        words = home.lines("roles", "-i", name)[0].split()
        config = json.loads(words[4])
        told[name] = (*words[:4], config["task"])
        assert {kind: len(all) for kind, all in config["cluster"].items()} == {
            "chief": 1, "worker": 2, "ps": 1}
    assert told == {
        "chief-0": ("chief", "0", "0", "3", {"type": "chief", "index": 0}),
        "worker-0": ("worker", "0", "1", "3", {"type": "worker", "index": 0}),
        "worker-1": ("worker", "1", "2", "3", {"type": "worker", "index": 1}),
        "ps-0": ("ps", "0", "none", "none", {"type": "ps", "index": 0}),
        "evaluator-0": ("evaluator", "0", "none", "none", {"type": "evaluator", "index": 0})}
    assert home.lines("roles", "-i", "evaluator-0")[-1] == "scored"
    home.wait_for_no_processes()


def test_a_parameter_server_that_dies_is_the_cause(home):
    home.dtrain("submit", "--name=dies", "--ps=1", "--workers=2", "--", "sh", "-c",
                "[ $ROLE_NAME = ps ] && exit 4; exec sleep 600")
    cause = home.wait_for_end("dies", expect=EXIT_JOB_FAILED)["cause"]
    assert (cause["instance"], cause["rank"], cause["exitCode"]) == ("ps-0", -1, 4)


@pytest.mark.parametrize("words", [
    ["tfjob"], ["tfjob", "--success-policy=ChiefWorker"]], ids=" ".join)
def test_the_chiefs_success_is_a_tfjobs_as_with_arena(home, words):
    home.dtrain("submit", *words, "--name=first", "--workers=2", "--", "sh", "-c",
                "[ $RANK = 0 ] || exec sleep 600")
    assert home.wait_for_end("first")["status"] == "SUCCEEDED"


@pytest.mark.parametrize("words", [[], ["tfjob", "--success-policy=AllWorkers"]], ids=" ".join)
def test_elsewhere_all_must_succeed(home, words):
    home.dtrain("submit", *words, "--name=all", "--workers=2", "--", "sh", "-c",
                "[ $RANK = 0 ] || { sleep 0.5; exit 3; }")
    assert home.wait_for_end("all", expect=EXIT_JOB_FAILED)["cause"]["instance"] == "worker-1"


def test_arenas_line_runs_as_it_is(home, fake_deepspeed):
    home.dtrain("submit", *ARENA_LINE, env=fake_deepspeed)
    job = home.wait_for_end("deepspeed-helloworld")
    assert (job["trainer"], job["requestGPUs"], job["chiefName"]) == ("ETJOB", 3, "launcher-0")
    lines = home.lines("deepspeed-helloworld")
    assert re.fullmatch(r"args --master_addr=\S+ --master_port=\d+ --hostfile=\S+ "
                        r"/workspace/train_bert_ds.py --checkpoint_dir /data/deepspeed_data",
                        lines[0])
    assert lines[1:3] == ["localhost slots=3", "ssh works"]
    assert "no other host" in lines


def test_the_launchers_exit_code_is_the_jobs(home):
    home.dtrain("submit", "deepspeedjob", "--name=code", "--workers=2", "exit 7")
    assert home.wait_for_end("code", expect=EXIT_JOB_FAILED)["cause"]["exitCode"] == 7


def test_mpirun_finds_its_slots_in_the_host_file(home):
    home.dtrain("submit", "mpijob", "--name=mpi", "--workers=3", "--wait", "--",
                "mpirun", "sh", "-c", "echo rank $OMPI_COMM_WORLD_RANK")
    assert sorted(home.lines("mpi")) == ["rank 0", "rank 1", "rank 2"]


def test_a_pytorchjob_has_a_master_and_torchruns_defaults(home):
    home.dtrain("submit", "pytorchjob", "--name=torch", "--workers=2", "--nproc-per-node=3",
                "--wait", "echo $RANK $WORLD_SIZE $PET_NNODES $PET_NODE_RANK $PET_NPROC_PER_NODE")
    assert list(instances(home, "torch")) == ["master-0", "worker-0"]
    assert home.lines("torch", "-i", "master-0") == ["0 2 2 0 3"]
    assert home.lines("torch", "-i", "worker-0") == ["1 2 2 1 3"]


@pytest.mark.parametrize("words, named", [
    (["tfjbo", "--", "true"], ["tfjbo", "tfjob"]),
    (["python", "train.py"], ["--", "python"]),
    (["etjob"], ["etjob", "command"]),
    (["etjob", "--ps=1", "true"], ["--ps", "etjob"]),
    (["pytorchjob", "--chief", "--", "true"], ["--chief"]),
    (["tfjob", "--nproc-per-node=2", "true"], ["--nproc-per-node", "pytorchjob"]),
    (["pytorchjob", "--nproc-per-node=many", "true"], ["--nproc-per-node", "many"]),
    (["tfjob", "--role-sequence=PS,PS", "true"], ["--role-sequence"]),
    (["tfjob", "--ps=-1", "true"], ["--ps"]),
    (["tfjob", "--ps-gpus=1", "true"], ["--ps-gpus", "--ps"]),
    (["tfjob", "--worker-cpu=2", "true"], ["--worker-cpu", "local"]),
    (["tfjob", "--ps-port=2222", "true"], ["--ps-port", "local"]),
    (["tfjob", "one", "--", "two"], ["two commands"]),
    (["--workers=2", "--min-workers=3", "--", "true"], ["--min-workers"]),
    (["--memory=10Gigs", "--backend=kubernetes", "--image=x", "--", "true"], ["10Gigs"])], ids=str)
def test_roles_that_cannot_be_are_refused(home, words, named):
    result = home.dtrain("submit", *words, expect=EXIT_USAGE)
    assert result.err.count("\n") == 1 and all(word in result.err for word in named), result
    assert not home.state.exists()


def states(home, name):
    return [(each["status"], each.get("exitCode")) for each in home.get(name)["instances"]]


@pytest.mark.parametrize("script", [
    "[ $RANK = 0 ] && sleep 0.3; exit $RANK", "[ $RANK = 1 ] && sleep 0.3; exit $RANK",
    "exit $RANK"], ids=["worker first", "chief first", "at once"])
def test_the_chiefs_success_is_a_tfjobs_whenever_another_worker_fails(home, script):
    home.dtrain("submit", "tfjob", "--name=t", "--workers=2", "--grace-period=10s", "--", "sh", "-c",
                script)
    assert home.wait_for_end("t", expect=0)["status"] == "SUCCEEDED"
    assert states(home, "t") == [("Succeeded", 0), ("Failed", 1)]


def test_a_tfjob_whose_chief_does_not_succeed_soon_fails_by_the_worker_that_failed(home):
    home.dtrain("submit", "tfjob", "--name=t", "--workers=2", "--", "sh", "-c",
                "[ $RANK = 1 ] && exit 3; exec sleep 600")
    job = home.wait_for_end("t", expect=EXIT_JOB_FAILED)
    assert job["cause"]["instance"] == "worker-1"
    assert [each["status"] for each in job["instances"]] == ["Terminated", "Failed"]


def test_those_that_dtrain_ended_are_terminated_and_not_failed(home):
    home.submit("g", "sh", "-c", "[ $RANK = 1 ] && exit 7; exec sleep 600", flags=["--workers=3"])
    job = home.wait_for_end("g", expect=EXIT_JOB_FAILED)
    assert [each["status"] for each in job["instances"]] == ["Terminated", "Failed", "Terminated"]


def test_a_launchers_pdsh_takes_the_ssh_beside_it(home):
    home.script("pdsh", 'exec "$PDSH_RCMD_TYPE" "$2" "$3"')  # As pdsh -w HOST COMMAND does.
    home.dtrain("submit", "mpijob", "--name=p", "--workers=2", "--", "pdsh", "-w", "localhost",
                "echo ran", env={"PATH": f"{home.folder}:{os.environ['PATH']}"})
    home.dtrain("wait", "p")
    assert home.lines("p", "-i", "launcher-0") == ["ran"]
