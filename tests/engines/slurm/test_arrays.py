"""A sweep: one sbatch, whose tasks are the same job with an index each."""
import pytest

from harness import EXIT_ENGINE, EXIT_JOB_FAILED, EXIT_NOT_FOUND, EXIT_USAGE, until


@pytest.fixture
def slurm(slurm_home):
    return slurm_home


def test_each_task_of_an_array_is_the_whole_job_with_its_index(slurm):
    slurm.submit("sweep", "sh", "-c",
                 "echo $SLURM_ARRAY_TASK_ID: $RANK of $WORLD_SIZE, $DTRAIN_JOB_UID, $MASTER_PORT",
                 flags=["--array=1,5-7:2", "--workers=2"])
    slurm.wait_for_end("sweep", 0)
    job = slurm.get("sweep")
    names = [f"{index}/worker-{rank}" for index in (1, 5, 7) for rank in range(2)]
    assert [each["name"] for each in job["instances"]] == names
    assert [each["status"] for each in job["instances"]] == ["Succeeded"] * 6
    assert [each["chief"] for each in job["instances"]] == [True] + [False] * 5
    said = {name: slurm.lines("sweep", "-i", name)[0].split(", ") for name in names}
    for index in (1, 5, 7):
        first, second = (said[f"{index}/worker-{rank}"] for rank in range(2))
        assert (first[0], second[0]) == (f"{index}: 0 of 2", f"{index}: 1 of 2")
        assert first[1:] == second[1:]  # One gang …
    assert len({words[1] for words in said.values()}) == 3  # … of three.
    assert len(slurm.lines("sweep")) == 6
    listed = slurm.dtrain("list", "-o", "json").json()
    assert [(each["name"], each["status"]) for each in listed] == [("sweep", "SUCCEEDED")]


def test_a_task_that_fails_is_named_and_the_others_go_on(slurm):
    slurm.submit("some", "sh", "-c",
                 "[ $SLURM_ARRAY_TASK_ID != 1 ] || { echo bad >&2; exit 7; }; sleep 1; echo done",
                 flags=["--array=0-2"])
    result = slurm.dtrain("wait", "some", expect=EXIT_JOB_FAILED)
    assert "1/worker-0" in result.err and "code 7" in result.err
    job = slurm.get("some")
    assert "2 succeeded, 1 failed" in job["reason"]
    cause = job["cause"]
    assert (cause["instance"], cause["rank"], cause["exitCode"]) == ("1/worker-0", 0, 7)
    assert cause["lastStderr"] == ["bad"]
    for index in 0, 2:
        assert slurm.lines("some", "-i", f"{index}/worker-0") == ["done"]


def test_a_task_is_restarted_by_itself(slurm):
    slurm.submit("again", "sh", "-c",
                 "echo run $DTRAIN_RESTART_COUNT; [ $SLURM_ARRAY_TASK_ID$DTRAIN_RESTART_COUNT != 10 ]",
                 flags=["--array=0-1", "--max-restarts=1"])
    assert slurm.lines("again", "-f", "-i", "1/worker-0") == ["run 0", "run 1"]
    slurm.wait_for_end("again", 0)
    assert slurm.lines("again", "-i", "0/worker-0") == ["run 0"]
    assert slurm.lines("again", "-i", "1/worker-0", "--prev") == ["run 0"]
    assert slurm.get("again")["restarts"] == 1


def test_an_array_of_a_thousand_tasks_is_one_sbatch(slurm, slurm_cluster):
    tools = slurm.folder / "tools"
    tools.mkdir()
    (tools / "sbatch").write_text(f'#!/bin/sh\necho called >>{tools}/calls\nexec /usr/bin/sbatch "$@"\n')
    (tools / "sbatch").chmod(0o755)
    slurm.submit("wide", "sleep", "600", flags=["--array=0-999%2", "--gpus=1"],
                 env={"PATH": f"{tools}:{slurm.env['PATH']}"})
    assert (tools / "calls").read_text() == "called\n"
    until(lambda: "2 running, 998 waiting" in slurm.get("wide")["reason"], "two run, as they may")
    job = slurm.get("wide")
    assert len(job["instances"]) == 1000 and job["status"] == "RUNNING"
    assert (job["requestGPUs"], job["allocatedGPUs"]) == (1000, 2)
    listed = slurm.dtrain("list", "-o", "json").json()
    assert [(each["name"], each["status"]) for each in listed] == [("wide", "RUNNING")]
    assert slurm.dtrain("exec", "wide", "-i", "1/worker-0", "--", "sh", "-c",
                        "echo $SLURM_ARRAY_TASK_ID").out == "1\n"
    number = job["uuid"]
    slurm.dtrain("delete", "wide")
    left = slurm_cluster.call("squeue", "--noheader", f"--jobs={number}", "--format=%T")
    assert left == ""
    slurm.dtrain("get", "wide", expect=EXIT_NOT_FOUND)


def test_an_array_that_is_cancelled_says_so(slurm, slurm_cluster):
    slurm.submit("gone", "sleep", "600", flags=["--array=0-9%1"])
    until(lambda: "1 run" in slurm.get("gone")["reason"], "one runs")
    slurm_cluster.call("scancel", slurm.get("gone")["uuid"])
    result = slurm.dtrain("wait", "gone", expect=EXIT_JOB_FAILED)
    assert "scancel" in result.err
    assert "10 failed" in slurm.get("gone")["reason"]


def test_what_waits_of_an_array_is_held(slurm):
    slurm.submit("held", "sh", "-c", "sleep 2; echo ran", flags=["--array=0-2%1"])
    until(lambda: "1 run" in slurm.get("held")["reason"], "one runs")
    slurm.dtrain("suspend", "held")
    until(lambda: slurm.get("held")["status"] == "SUSPENDED", "nothing runs any more")
    slurm.dtrain("resume", "held")
    slurm.wait_for_end("held", 0)
    assert slurm.lines("held") == [f"{index}/worker-0 | ran" for index in range(3)]


@pytest.mark.parametrize("flags,words", [
    (["--array=some"], "--array=some"),
    (["--array=3-1"], "--array=3-1"),
    (["--array=0-9", "mpijob"], "--array"),
])
def test_what_is_no_array_is_a_usage_error(slurm, flags, words):
    result = slurm.dtrain("submit", *flags, "--", "true", expect=EXIT_USAGE)
    assert words in result.err and result.err.count("\n") == 1


def test_an_array_larger_than_slurm_allows_is_refused_with_where_to_look(slurm):
    result = slurm.dtrain("submit", "--name=big", "--array=0-5000", "--", "true",
                          expect=EXIT_ENGINE)
    assert "--array=0-5000" in result.err and "MaxArraySize" in result.err
    assert slurm.dtrain("list", "-o", "name").out == ""
