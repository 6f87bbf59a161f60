"""The steps of a job end one another: none is left alone, whatever it waits for. What is ended never ends by
itself."""
import pytest

from engines.slurm.fixtures import cluster_up
from harness import EXIT_JOB_FAILED, until

FOREVER = "exec sleep 600"
PLACE = ["tfjob", "--workers=2", "--ps=1", "--evaluator"]


@pytest.fixture
def slurm(slurm_home):
    return slurm_home


def by_role(**commands):
    """A command that does as its role says: what TF_CONFIG calls it."""
    cases = " ".join(f"*'\"{role}\"}}}}') {command} ;;" for role, command in commands.items())
    return ["sh", "-c", f"case $TF_CONFIG in {cases} *) {FOREVER} ;; esac"]


def states(slurm, name):
    return {each["name"]: each["status"] for each in slurm.get(name)["instances"]}


def test_parameter_servers_that_never_return_end_with_the_workers(slurm):
    slurm.submit("serves", *by_role(worker="true"), flags=["tfjob", "--workers=2", "--ps=1"])
    assert slurm.wait_for_end("serves", 0)["status"] == "SUCCEEDED"
    assert states(slurm, "serves")["ps-0"] == "Terminated"
    slurm.wait_for_no_processes()


def test_what_helps_has_time_to_end_by_itself(slurm):
    """A parameter server that ends with the workers is not asked to, nor an evaluator that scores the last
    checkpoint."""
    slurm.submit("helps", *by_role(worker="true", ps=FOREVER, evaluator="sleep 5; echo scored"), flags=PLACE)
    slurm.wait_for_end("helps", 0)
    assert slurm.lines("helps", "-i", "evaluator-0") == ["scored"]
    assert states(slurm, "helps") == {"worker-0": "Succeeded", "worker-1": "Succeeded",
                                      "ps-0": "Terminated", "evaluator-0": "Succeeded"}


@pytest.mark.parametrize("role,rank", [("ps", ""), ("evaluator", ""), ("worker", " (rank 0)")])
def test_a_step_that_fails_ends_the_others_and_its_code_is_the_job_s(slurm, slurm_cluster, role, rank):
    slurm.submit("falls", *by_role(**{role: "[ ${RANK-0} = 0 ] || exec sleep 600; echo no more >&2; sleep 1; exit 7"}), flags=PLACE)
    result = slurm.dtrain("wait", "falls", expect=EXIT_JOB_FAILED)
    assert f"{role}-0{rank} on node1 ended with exit code 7" in result.err and "no more" in result.err
    number = slurm.get("falls")["uuid"]
    until(lambda: "ExitCode=7:0" in slurm_cluster.call("scontrol", "show", "job", number),
          "the code is the job's")
    slurm.wait_for_no_processes()


def test_those_that_are_ended_have_time_for_it(slurm):
    slurm.submit("asks", *by_role(ps="until [ -e is-0 ] && [ -e is-1 ]; do sleep 0.1; done; exit 3",
                                  worker="trap 'echo saved; exit 0' TERM; touch is-$RANK; while :; do sleep 0.1; done"),
                 flags=["tfjob", "--workers=2", "--ps=1"])
    result = slurm.dtrain("wait", "asks", expect=EXIT_JOB_FAILED)
    assert "ps-0 on node1 ended with exit code 3" in result.err
    said = [line for line in slurm.lines("asks") if "saved" in line]  # And what sh says of its sleep.
    assert sorted(said) == ["worker-0 | saved", "worker-1 | saved"]


def test_one_that_does_not_end_when_asked_is_killed(slurm):
    slurm.submit("deaf", *by_role(ps="until [ -e is ]; do sleep 0.1; done; exit 3",
                                  worker="trap '' TERM; touch is; while :; do sleep 1; done"),
                 flags=["tfjob", "--workers=1", "--ps=1"])
    assert "ps-0" in slurm.dtrain("wait", "deaf", expect=EXIT_JOB_FAILED).err
    slurm.wait_for_no_processes()


def test_a_step_that_cannot_start_ends_the_others(slurm):
    slurm.script("srun", 'case "$*" in *" rank 0 2 "*) echo no such step >&2; exit 5 ;; esac\n'
                         'exec /usr/bin/srun "$@"')
    slurm.env["PATH"] = f"{slurm.folder}:{slurm.env['PATH']}"
    slurm.submit("lacks", "sleep", "600", flags=["tfjob", "--workers=2", "--ps=1"])
    result = slurm.dtrain("wait", "lacks", expect=EXIT_JOB_FAILED)
    assert "exit code 5" in result.err or "no such step" in result.err
    slurm.wait_for_no_processes()


def test_a_failed_rank_is_named_where_others_are_ended_for_it(slurm):
    slurm.submit("names", "sh", "-c", "[ $RANK = 1 ] && exit 7; exec sleep 600", flags=["--workers=2"])
    result = slurm.dtrain("wait", "names", expect=EXIT_JOB_FAILED)
    assert "worker-1 (rank 1) on node1 ended with exit code 7" in result.err
    assert states(slurm, "names") == {"worker-0": "Terminated", "worker-1": "Failed"}
    listed = slurm.dtrain("list", "-o", "json").json()
    assert [each["node"] for each in listed] == ["node1"]


def test_the_chief_s_success_is_the_job_s_where_it_decides(slurm):
    slurm.submit("chief", "sh", "-c", "[ $RANK = 0 ] || exec sleep 600", flags=["tfjob", "--workers=3"])
    slurm.wait_for_end("chief", 0)
    assert states(slurm, "chief") == {"worker-0": "Succeeded", "worker-1": "Terminated",
                                      "worker-2": "Terminated"}
    slurm.submit("all", "sh", "-c", "[ $RANK = 0 ] || sleep 5; echo $RANK",
                 flags=["tfjob", "--workers=2", "--success-policy=AllWorkers"])
    slurm.wait_for_end("all", 0)
    assert sorted(slurm.lines("all")) == ["worker-0 | 0", "worker-1 | 1"]


def test_nothing_is_ended_where_the_policy_is_none(slurm):
    slurm.submit("left", *by_role(worker="true", ps="sleep 5; echo by itself"),
                 flags=["tfjob", "--workers=1", "--ps=1", "--clean-task-policy=None"])
    slurm.wait_for_end("left", 0)
    assert slurm.lines("left", "-i", "ps-0") == ["by itself"]


@pytest.fixture
def memory_home(home):
    """Of a cluster that shares out memory, too, where nobody says how much a job needs."""
    with cluster_up(MEMORY="4000", NODES="1") as cluster:
        home.env.update(SLURM_CONF=cluster.conf, DTRAIN_BACKEND="slurm")
        yield home
        for job in home.dtrain("list", "-A", "-o", "json").json():
            home.dtrain("delete", job["name"], "-n", job["namespace"])


@pytest.mark.parametrize("gpus", [[], ["--gpus=1", "--ps-gpus=1"]])
def test_a_second_step_starts_where_memory_is_shared_out(memory_home, gpus):
    memory_home.submit("both", *by_role(worker="echo $CUDA_VISIBLE_DEVICES", ps="echo $CUDA_VISIBLE_DEVICES"),
                       flags=["tfjob", "--workers=1", "--ps=1", *gpus])
    memory_home.wait_for_end("both", 0)
    said = [memory_home.lines("both", "-i", instance)[0] for instance in ("worker-0", "ps-0")]
    assert not gpus or said[0] != said[1]


def test_submit_says_why_a_job_waits(slurm):
    slurm.submit("hog", "sleep", "600", flags=["--workers=4", "--worker-cpu=8"])
    slurm.running("hog")
    with slurm.start([slurm.dtrain_path, "submit", "--wait", "--name=waits", "--", "true"], text=True) as waits:
        told = []
        until(lambda: told.append(waits.stderr.readline()) or "(Resources)" in told[-1], "it says why")
        slurm.dtrain("delete", "hog")
        told += waits.stderr.readlines()
    why = [line.strip().partition(" waits: ")[2] for line in told if " waits: " in line or line.strip().endswith("waits:")]
    assert all(why) and len(why) == len(set(why))
