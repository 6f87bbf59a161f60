"""From submit to prune: timeouts, labels, clones, and looking at what runs."""
import json
import os
import time

from harness import EXIT_ENGINE, EXIT_JOB_FAILED, EXIT_NOT_FOUND, EXIT_USAGE, until


def names(home, *flags):
    return home.dtrain("list", *flags, "-o", "name").out.replace("job/", "").split()


def test_a_job_is_ended_after_its_running_timeout(home):
    home.submit("slow", "sleep", "600", flags=["--workers=2", "--running-timeout=1s"])
    job = home.wait_for_end("slow", expect=EXIT_JOB_FAILED)
    assert "--running-timeout=1s" in job["cause"]["message"]
    home.wait_for_no_processes()


def test_a_job_is_forgotten_after_its_time(home):
    home.submit("brief", "true", flags=["--ttl-after-finished=1s"])
    home.dtrain("wait", "brief")
    until(lambda: names(home) == [], "the job is forgotten")
    home.dtrain("get", "brief", expect=EXIT_NOT_FOUND)
    assert not (home.state / "dtrain/jobs/local/default/brief").exists()
    home.submit("brief", "true", flags=["--ttl-after-finished=0"])
    until(lambda: names(home) == [], "the job is forgotten")


def test_what_is_left_of_a_job_without_a_clean_task_policy_ends_by_itself(home):
    home.dtrain("submit", "tfjob", "--name=none", "--ps=1", "--clean-task-policy=None", "--",
                "sh", "-c", "[ $ROLE_NAME = worker ] || { sleep 2.5; echo done; }")
    home.dtrain("wait", "none")
    assert home.lines("none", "-i", "ps-0") == ["done"]


def test_jobs_are_listed_by_label_status_and_order(home):
    home.submit("b", "true", flags=["--label=team=vision", "-l", "kind=a"])
    home.submit("a", "false", flags=["--label=team=speech"])
    home.submit("c", "true")
    home.dtrain("wait", "a", "b", "c", expect=EXIT_JOB_FAILED)
    assert names(home, "--selector=team=vision") == ["b"]
    assert names(home, "-l", "team") == ["a", "b"]
    assert names(home, "-l", "team!=vision", "--sort=name") == ["a", "c"]
    assert names(home, "-l", "team=vision,kind=b") == []
    assert names(home, "--status=failed") == ["a"]
    assert names(home, "--status=failed,SUCCEEDED", "--sort=name") == ["a", "b", "c"]
    assert [job["name"] for job in home.dtrain("list", "--sort=status", "-o", "json").json()][-1] == "a"
    home.dtrain("list", "--status=lost", expect=EXIT_USAGE)


def test_delete_takes_a_label_and_keeps_the_logs_first(home):
    home.submit("one", "echo", "kept", flags=["-l", "team=a"])
    home.submit("two", "true")
    home.dtrain("wait", "one", "two")
    home.dtrain("delete", "-l", "team=a", f"--save-logs={home.folder / 'old'}")
    assert names(home) == ["two"]
    assert (home.folder / "old/one/worker-0.log").read_text() == "kept\n"
    home.dtrain("delete", "one", "two", "--ignore-not-found",
                env={"DTRAIN_SAVE_LOGS": f"{home.folder}/of all"})
    assert (home.folder / "of all/two/worker-0.log").exists()
    assert not (home.folder / "of all/one").exists()
    home.dtrain("delete", "-l", "team=a")


def test_prune_deletes_what_ended_long_ago_and_nothing_that_runs(home):
    home.submit("old", "true")
    home.submit("runs", "sleep", "600")
    home.dtrain("wait", "old")
    assert home.dtrain("prune", "--since=1h").out == ""
    time.sleep(1)
    assert "old" in home.dtrain("prune", "--since=1s", "--dry-run").out
    assert set(names(home)) == {"old", "runs"}
    home.dtrain("prune", "--since=1s")
    assert names(home) == ["runs"]
    home.dtrain("delete", "runs")


def test_a_clone_is_the_same_job_with_the_changes(home):
    home.submit("first", "sh", "-c", "echo $A $B", flags=["--env=A=1", "--env=B=1", "--workers=2"])
    home.dtrain("wait", "first")
    home.dtrain("clone", "first", "--name=second", "--env=B=2", "--workers=1", "--wait")
    assert home.lines("second") == ["1 2"]
    home.dtrain("clone", "first", "--name=third", "--wait", "--", "echo", "other")
    assert home.lines("third", "-i", "worker-1") == ["other"]
    home.dtrain("clone", "nobody", expect=EXIT_NOT_FOUND)


def test_wait_reports_each_job_as_it_ends(home):
    home.submit("late", "sh", "-c", "until [ -e go ]; do sleep 0.05; done")
    home.submit("early", "true")
    waiting = home.start([home.dtrain_path, "wait", "late", "early"])
    assert waiting.stdout.readline().startswith(b"job/early succeeded")
    (home.folder / "go").touch()
    assert waiting.stdout.readline().startswith(b"job/late succeeded")
    assert waiting.wait() == 0


def test_a_missing_name_is_asked_for_in_plain_words(home):
    result = home.dtrain("wait", expect=EXIT_USAGE)
    assert result.err == "dtrain wait: NAME is missing: a job to wait for\n"


def test_exec_runs_beside_an_instance_with_its_variables_and_folder(home):
    work = home.folder / "work"
    work.mkdir()
    home.submit("busy", "sleep", "600", flags=["--workers=2", f"--working-dir={work}", "-e", "A=b"])
    home.running("busy")
    result = home.dtrain("exec", "busy", "-i", "worker-1", "--", "sh", "-c",
                         "echo $RANK $A; pwd; exit 7", expect=7)
    assert result.out == f"1 b\n{work}\n"
    assert home.dtrain("attach", "busy", stdin="echo in $ROLE_NAME $RANK\n").out == "in worker 0\n"
    home.dtrain("exec", "busy", "-i", "ps-0", "--", "true", expect=EXIT_NOT_FOUND)
    home.dtrain("exec", "busy", expect=EXIT_USAGE)
    home.dtrain("delete", "busy")


def test_top_shows_what_is_in_use(home):
    home.submit("burns", "sh", "-c", "while :; do :; done")
    home.running("burns")
    node = home.dtrain("top", "node", "-o", "json", env={"DTRAIN_LOCAL_GPUS": "2"}).json()[0]
    assert node["cpus"] == os.cpu_count() and 0 < node["memoryUsed"] < node["memory"]
    assert (node["totalGPUs"], node["freeGPUs"]) == (2, 2)

    def busy():  # On a busy machine it may have got nothing while it was looked at.
        instance = home.dtrain("top", "job", "burns", "-o", "json").json()[0]
        assert instance["name"] == "worker-0" and instance["memory"] > 0
        return instance["cpus"] > 0.05
    until(busy, "its use of the CPU is seen")
    assert "worker-0" in home.dtrain("top", "job", "burns").out
    home.submit("ended", "true")
    home.dtrain("wait", "ended")
    home.submit("idles", "sleep", "600")
    home.running("idles")
    rows = [line.split()[:2] for line in home.dtrain("top", "job").out.splitlines()]
    assert rows[0] == ["JOB", "INSTANCE"] and sorted(rows[1:]) == [["burns", "worker-0"],
                                                                   ["idles", "worker-0"]]
    home.dtrain("delete", "idles")
    home.dtrain("delete", "burns")


def test_explain_says_why(home):
    home.submit("bad", "sh", "-c", "echo no such layer >&2; exit 3")
    home.dtrain("wait", "bad", expect=EXIT_JOB_FAILED)
    text = home.dtrain("explain", "bad").out
    assert "failed" in text and "exit code 3" in text and "no such layer" in text
    assert "dtrain logs bad -i worker-0" in text


def test_two_jobs_get_gpus_of_their_own_while_there_are_free_ones(home):
    gpus = {"DTRAIN_LOCAL_GPUS": "3"}
    show = ["sh", "-c", "echo $CUDA_VISIBLE_DEVICES; exec sleep 600"]

    def devices(name):
        return until(lambda: home.lines(name), f"{name} speaks")[0]
    home.submit("one", *show, flags=["--gpus=1"], env=gpus)
    home.submit("two", *show, flags=["--gpus=2"], env=gpus)
    assert (devices("one"), devices("two")) == ("0", "1,2")
    assert home.dtrain("top", "node", "-o", "json", env=gpus).json()[0]["requestedGPUs"] == 3
    shared = home.submit("three", *show, flags=["--gpus=1"], env=gpus)
    assert "shared with other jobs" in shared.err
    refused = home.submit("alone", "true", flags=["--gpus=1", "--require-gpus"], env=gpus, expect=EXIT_ENGINE)
    assert "the job asks for 1 GPU (1 per worker), and 1 of them" in refused.err and refused.err.count("\n") == 1
    home.dtrain("delete", "one")
    home.submit("four", *show, flags=["--gpus=1"], env=gpus)
    assert devices("four") == "0"
    home.dtrain("delete", "two", "three", "four")


def test_a_gpu_is_free_when_its_rank_has_ended_though_the_job_goes_on(home):
    gpus = {"DTRAIN_LOCAL_GPUS": "2"}
    free = lambda: home.dtrain("top", "node", "-o", "json", env=gpus).json()[0]["freeGPUs"]
    home.submit("half", "sh", "-c", "[ $RANK = 1 ] || exec sleep 600",
                flags=["--workers=2", "--gpus=1", "--grace-period=1s"], env=gpus)
    until(lambda: free() == 1, "the second has let go of its GPU")
    assert home.status("half") == "RUNNING"
    home.dtrain("delete", "half")
    assert free() == 2


def test_gpus_of_a_killed_job_are_free_again(home):
    gpus = {"DTRAIN_LOCAL_GPUS": "1"}
    home.submit("dies", "sleep", "600", flags=["--gpus=1"], env=gpus)
    record = json.loads((home.state / "dtrain/jobs/local/default/dies/status.json").read_text())
    os.kill(record["supervisor_pid"], 9)
    home.dtrain("wait", "dies", expect=EXIT_JOB_FAILED)
    assert home.submit("next", "true", flags=["--gpus=1"], env=gpus).err.count("shared with") == 0
    home.dtrain("wait", "next")


def test_check_makes_no_state_folder(home):
    home.dtrain("check", env={"DTRAIN_LOCAL_GPUS": "0"}, expect=None)
    assert not home.state.exists()


def test_who_asks_another_backend_for_a_job_is_told_which_has_it(home):
    home.submit("mine", "true", flags=["--wait"])
    result = home.dtrain("logs", "--backend=ssh", "mine", expect=EXIT_NOT_FOUND)
    assert result.err == ("dtrain logs: no job 'mine' in namespace 'default'; the local backend has one: "
                          "add --backend=local\n")
    assert home.dtrain("list", "--backend=ssh").err == ("No jobs of the ssh backend in namespace 'default'; "
                                                        "local has some: add --backend=local\n")
    home.dtrain("delete", "mine")
    assert home.dtrain("list", "--backend=ssh").err == "No jobs in namespace 'default'.\n"
    result = home.dtrain("logs", "--backend=ssh", "mine", expect=EXIT_NOT_FOUND)
    assert result.err.endswith("; 'dtrain list --backend=ssh' shows all\n")
