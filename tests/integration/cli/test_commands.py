"""What each command prints and how it exits."""
import json
import os
import re

import pytest
import yaml

from harness import EXIT_ENGINE, EXIT_JOB_FAILED, EXIT_NOT_FOUND, EXIT_USAGE, until

VERBS = ["submit", "get", "list", "logs", "delete", "wait", "check", "config", "completion",
         "version"]
ESCAPE = "\x1b"


@pytest.fixture
def finished(home):
    """A home with a job that succeeded and one that failed."""
    home.submit("good", "sh", "-c", "echo out $RANK; echo err $RANK >&2", flags=["--workers=2"])
    home.submit("bad", "sh", "-c", "echo told you >&2; exit 3")
    home.dtrain("wait", "good")
    home.dtrain("wait", "bad", expect=EXIT_JOB_FAILED)
    return home


@pytest.mark.parametrize("words", [["--help"], ["help"], *[[verb, "--help"] for verb in VERBS],
                                   ["template", "list", "--help"], ["template", "show", "--help"]],
                         ids=" ".join)
def test_help_goes_to_stdout_and_exits_0(home, words):
    result = home.dtrain(*words)
    assert result.err == "" and "usage:" in result.out.lower()
    assert max(map(len, result.out.splitlines())) <= 100


def test_version_is_one_line_on_stdout(home):
    assert re.fullmatch(r"dtrain \d+\.\d+\.\d+.*\n", home.dtrain("version").out)
    assert home.dtrain("--version").out == home.dtrain("version").out


def test_nothing_is_written_by_commands_that_only_read(home):
    for words in (["list"], ["version"], ["--help"], ["template", "list"],
                  ["completion", "bash"], ["submit", "--dry-run", "--", "true"]):
        home.dtrain(*words, expect=None)
    assert not home.state.exists()


def test_get_prints_the_table_that_arenas_users_know(finished):
    lines = finished.dtrain("get", "good").out.splitlines()
    keys = [line.partition(":")[0] for line in lines[:8]]
    assert keys == ["Name", "Status", "Namespace", "Priority", "Trainer", "Duration", "CreateTime",
                    "EndTime"]
    assert lines[1].split() == ["Status:", "SUCCEEDED"]
    table = lines.index("Instances:") + 1
    assert lines[table].split() == ["NAME", "STATUS", "AGE", "IS_CHIEF", "GPU(Requested)", "NODE"]
    assert lines[table + 2].split()[:2] == ["worker-0", "Succeeded"]
    assert lines[table + 3].split()[3] == "false"


def test_each_instance_has_its_own_age(home):
    home.submit("ages", "sh", "-c", "[ $RANK = 0 ] || exit 0; sleep 2.2", flags=["--workers=2"])
    home.dtrain("wait", "ages")
    ages = [int(instance["age"].rstrip("s")) for instance in home.get("ages")["instances"]]
    assert ages[0] >= 2 and ages[1] < ages[0]


def test_get_of_a_failed_job_says_why(finished):
    text = finished.dtrain("get", "bad").out
    assert "FAILED" in text and "worker-0" in text and "told you" in text
    assert re.search(r"code 3|exit 3", text)


def test_wait_of_a_failed_job_says_why_on_stderr(finished):
    result = finished.dtrain("wait", "bad", expect=EXIT_JOB_FAILED)
    assert "worker-0" in result.err and result.err.count("told you") == 1


def test_list_has_a_line_a_job_and_the_columns_of_arena(finished):
    lines = finished.dtrain("list").out.splitlines()
    assert lines[0].split() == ["NAME", "STATUS", "TRAINER", "DURATION", "GPU(Requested)",
                                "GPU(Allocated)", "NODE", "AGE"]
    assert {line.split()[0]: line.split()[1] for line in lines[1:]} == {
        "good": "SUCCEEDED", "bad": "FAILED"}


def test_list_of_nothing_says_so(home):
    result = home.dtrain("list")
    assert "no jobs" in (result.out + result.err).lower()


@pytest.mark.parametrize("command", [["get", "good"], ["list"]], ids=lambda words: words[0])
def test_every_output_form_can_be_read_back(finished, command):
    from_json = finished.dtrain(*command, "-o", "json").json()
    from_yaml = yaml.safe_load(finished.dtrain(*command, "-o", "yaml").out)
    assert from_json == from_yaml
    names = finished.dtrain(*command, "-o", "name").out.splitlines()
    assert "good" in [name.rpartition("/")[2] for name in names]
    wide = finished.dtrain(*command, "-o", "wide").out
    assert len(wide) > len(finished.dtrain(*command).out)


@pytest.mark.parametrize("env, coloured", [
    ({}, False), ({"FORCE_COLOR": "1"}, True), ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, True),
    ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)], ids=str)
def test_a_pipe_has_colours_only_where_they_are_asked_for(finished, env, coloured):
    for command in (["get", "good"], ["logs", "good"]):
        assert (ESCAPE in finished.dtrain(*command, env=env).out) == coloured


def test_logs_prefix_the_instances_and_keep_both_streams(finished):
    lines = sorted(finished.lines("good"))
    assert [line.split()[0].strip("[]|:") for line in lines] == ["worker-0"] * 2 + ["worker-1"] * 2
    assert sorted(line.split(maxsplit=1)[1].lstrip("| ") for line in lines) == [
        "err 0", "err 1", "out 0", "out 1"]


def test_logs_of_one_instance_have_no_prefix(finished):
    assert sorted(finished.lines("good", "-i", "worker-1")) == ["err 1", "out 1"]


def test_logs_of_an_instance_that_is_not_there_are_not_found(finished):
    result = finished.dtrain("logs", "good", "-i", "worker-9", expect=EXIT_NOT_FOUND)
    assert "worker-9" in result.err and result.err.count("\n") == 1


def test_logs_tail_since_and_timestamps(home):
    home.submit("some", "sh", "-c", "seq 1 5; sleep 2; seq 6 10")
    home.dtrain("wait", "some")
    one = ["-i", "worker-0"]
    assert home.lines("some", *one, "--tail=3") == ["8", "9", "10"]
    assert home.lines("some", *one, "--tail=0") == []
    assert home.lines("some", *one, "--since=1h") == [str(n) for n in range(1, 11)]
    stamped = home.lines("some", *one, "--timestamps")
    assert all(re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\S* \d+$", line) for line in stamped)
    sixth = stamped[5].split()[0]
    assert home.lines("some", *one, f"--since-time={sixth}") == [str(n) for n in range(6, 11)]
    until(lambda: home.lines("some", *one, "--since=1s") == [], "a second has passed")


def test_wait_times_out_with_exit_124_and_leaves_the_job(home):
    home.submit("slow", "sleep", "600")
    result = home.dtrain("wait", "slow", "--timeout=1s", expect=124)
    assert result.err.count("\n") == 1
    assert home.status("slow") in ("PENDING", "RUNNING")
    home.dtrain("delete", "slow")


def test_the_run_before_a_restart_is_read_by_previous_and_by_kubectls_p(home):
    home.submit("twice", "sh", "-c", "echo run $DTRAIN_RESTART_COUNT; exit $((3 - 3 * DTRAIN_RESTART_COUNT))",
                flags=["--max-restarts=1"])
    home.dtrain("wait", "twice")
    assert home.lines("twice") == ["run 1"]
    for flag in "-p", "--previous":
        assert home.lines("twice", flag) == ["run 0"]
    home.submit("once", "true")
    home.dtrain("wait", "once")
    assert "has not been restarted" in home.dtrain("logs", "-p", "once", expect=EXIT_NOT_FOUND).err


def test_submit_wait_streams_the_logs_and_exits_with_the_job(home):
    result = home.dtrain("submit", "--name=streams", "--workers=2", "--wait", "--", "sh", "-c",
                         "echo from $RANK; touch up.$RANK; [ $RANK = 1 ] || exec sleep 600; "
                         "until [ -e up.0 ]; do sleep 0.01; done; exit 4",
                         expect=EXIT_JOB_FAILED)
    assert "from 0" in result.out and "from 1" in result.out
    assert "worker-1" in result.err


def test_submit_prints_the_jobs_name_for_scripts(home):
    name = home.dtrain("submit", "-o", "name", "--", "true").out.strip().rpartition("/")[2]
    assert home.wait_for_end(name)["status"] == "SUCCEEDED"


def test_a_job_without_a_name_gets_one_each_time(home):
    for _ in range(5):
        home.dtrain("submit", "--", "true")
    names = home.dtrain("list", "-o", "name").out.split()
    assert len(set(names)) == 5
    for name in names:
        home.dtrain("wait", name.rpartition("/")[2])


def test_delete_takes_several_and_reports_each(home):
    for name in ("one", "two"):
        home.submit(name, "true")
        home.dtrain("wait", name)
    result = home.dtrain("delete", "one", "nobody", "two", expect=EXIT_NOT_FOUND)
    assert result.out == "job/one deleted\njob/two deleted\n" and "'nobody'" in result.err
    assert home.dtrain("list", "-o", "name").out == ""


def test_a_dry_run_is_what_submit_stores_byte_for_byte(home):
    words = ["--name=same", "--workers=2", "--env=A={{x}}", "--", "echo", "é", "$x", "a b"]
    plan = home.dtrain("submit", "--dry-run", *words).out
    home.dtrain("submit", *words)
    home.dtrain("wait", "same")
    stored = (home.state / "dtrain/jobs/local/default/same/plan.yaml").read_text()
    assert plan == stored


def test_a_dry_run_of_a_job_file_with_hostile_bytes_round_trips(home):
    hostile = ["it's", 'a "b"', "x\ny", "$HOME", "#", "{{x}}", os.fsdecode(b"\xff\x00"[:1])]
    first = home.dtrain("submit", "--name=rt", "--dry-run", "-o", "yaml", "--", *hostile).out
    path = home.folder / "job.yaml"
    path.write_bytes(os.fsencode(first))
    assert home.dtrain("submit", "-f", path, "--dry-run", "-o", "yaml").out == first


def test_a_flag_wins_over_the_job_file(home):
    path = home.folder / "job.yaml"
    path.write_text(home.dtrain("submit", "--name=file", "--workers=2", "--dry-run", "-o", "yaml",
                                "--", "true").out)
    job = yaml.safe_load(home.dtrain("submit", "-f", path, "--workers=3", "--dry-run", "-o",
                                     "yaml").out)
    assert job["workers"] == 3 and job["name"] == "file"


def test_a_job_file_is_read_from_stdin(home):
    job = home.dtrain("submit", "--name=stdin", "--dry-run", "-o", "yaml", "--", "true").out
    home.dtrain("submit", "-f", "-", stdin=job)
    assert home.wait_for_end("stdin")["status"] == "SUCCEEDED"


def test_a_job_may_be_named_kubectls_way_by_two_words(home):
    for name in ("a", "b", "tf"):
        home.submit(name, "true")
        home.dtrain("wait", "job", name)
    assert home.dtrain("get", "job", "a", "-o", "name").out == "job/a\n"
    assert home.dtrain("get", "tfjob", "a", "b", "-o", "name").out == "job/a\njob/b\n"
    assert home.dtrain("get", "tf", "a", "-o", "name").out == "job/tf\njob/a\n"
    assert home.dtrain("explain", "jobs", "b").out
    assert home.dtrain("get", "TFJob/a", "-o", "name").out == "job/a\n"
    error = home.dtrain("logs", "a", "worker-0", expect=EXIT_NOT_FOUND).err
    assert "dtrain logs a -i worker-0" in error
    home.dtrain("delete", "job", "a", "b")
    home.dtrain("get", "job", expect=EXIT_NOT_FOUND)
    home.dtrain("get", "job", "", expect=EXIT_USAGE)


def test_watching_a_job_ends_with_it(home):
    home.submit("watched", "sleep", "0.5")
    result = home.dtrain("get", "watched", "-w")
    assert "SUCCEEDED" in result.out


def test_check_names_what_it_looked_at(home):
    result = home.dtrain("check", env={"DTRAIN_LOCAL_GPUS": "0"}, expect=None)
    assert "GPU" in result.out
    assert home.dtrain("check", "-o", "json", expect=None).json()


def test_check_names_gpus_that_jobs_would_fail_by(home):
    def health(script, code=0):
        home.script("nvidia-smi", f"{script}\nexit {code}")
        env = {"DTRAIN_LOCAL_GPUS": "3", "PATH": f"{home.folder}:{home.env['PATH']}"}
        found = home.dtrain("check", "-o", "json", env=env, expect=None).json()
        return [(each["level"], each["found"]) for each in found if each["what"] == "GPU health"]

    good = "echo '0, NVIDIA H100, 580.159.04, 0, No, No, [N/A]'"
    assert health(good) == [("ok", "driver 580.159.04, no memory errors")]
    (ecc, rows, dead) = health(f"""{good}
        echo '1, NVIDIA H100, 580.159.04, 12, No, No, [N/A]'
        echo '2, NVIDIA A100, 580.159.04, 0, No, Yes, [N/A]'
        echo '3, NVIDIA A100, 580.159.04, 7, Yes, Yes, [N/A]'""")
    assert ecc == ("warning", "GPU 1 (NVIDIA H100): 12 uncorrectable ECC errors since the driver was "
                              "loaded; reset it: nvidia-smi --gpu-reset -i 1; or hide it with "
                              "CUDA_VISIBLE_DEVICES")
    assert "GPU 2 (NVIDIA A100): it has bad memory" in rows[1] and "cannot be remapped" in dead[1]
    lost = "Unable to determine the device handle for GPU 0000:05:00.0: GPU is lost.  Reboot the system"
    assert health(f"echo '{lost}'", 15) == [("warning", f"nvidia-smi failed: {lost}")]
    assert health("echo") == [("warning", "unknown: nvidia-smi lists no GPU")]
    home.script("nvidia-smi", "exit 0")
    assert home.dtrain("check", "-o", "json", env={"DTRAIN_LOCAL_GPUS": "0"}, expect=None).json()


def test_templates_are_listed_and_shown(home):
    names = home.dtrain("template", "list").out
    assert "local/job.yaml" in names
    assert "{{" in home.dtrain("template", "show", "local/job.yaml").out
    home.dtrain("template", "show", "no/such", expect=EXIT_NOT_FOUND)


def test_a_profile_gives_defaults_that_a_flag_overrides(home):
    home.dtrain("config", "set", "--profile=lab", "namespace", "team-x", expect=None)
    result = home.dtrain("submit", "--profile=lab", "--name=p", "--dry-run", "-o", "yaml", "--",
                         "true")
    assert yaml.safe_load(result.out)["namespace"] == "team-x"
    result = home.dtrain("submit", "--profile=lab", "-n", "team-y", "--name=p", "--dry-run", "-o",
                         "yaml", "--", "true")
    assert yaml.safe_load(result.out)["namespace"] == "team-y"


def test_a_closed_pipe_ends_a_command_quietly(finished):
    finished.submit("many", "seq", "100000")
    finished.dtrain("wait", "many")
    result = finished.run(["sh", "-c", f"{finished.dtrain_path} logs many | head -n 1"])
    assert result.out.count("\n") == 1 and result.err == ""


@pytest.mark.parametrize("words, named", [
    (["sumbit"], "submit"), (["submit", "--worker=2"], "--workers"),
    (["get", "x", "--namespaec=y"], "--namespace"), (["template"], "list"),
    (["completion", "tcsh"], "bash")])
def test_a_slip_of_the_pen_is_answered_with_what_was_meant(home, words, named):
    result = home.dtrain(*words, expect=EXIT_USAGE)
    assert named in result.err.lower() or named in result.out.lower()


def test_a_state_record_is_readable_by_its_owner_only(finished):
    looked_at = 0
    for path in finished.state.rglob("*"):
        try:
            assert path.stat().st_mode & 0o077 == 0, path
            looked_at += 1
        except FileNotFoundError:  # A supervisor that is ending has put its file in place meanwhile.
            pass
    assert looked_at > 10


def test_records_are_plain_json(finished):
    record = finished.state / "dtrain/jobs/local/default/good/status.json"
    assert json.loads(record.read_text())


def test_list_sees_a_job_at_once_after_submit(home):
    home.submit("seen", "sleep", "600")
    assert "seen" in home.dtrain("list", "-o", "name").out
    until(lambda: home.status("seen") == "RUNNING", "it runs")
    home.dtrain("delete", "seen")


def test_the_whole_job_is_told_to_programs_and_its_command_to_people(home):
    home.submit("told", "sh", "-c", "exit 0", flags=["--env=A=b c", "--max-restarts=2"])
    home.dtrain("wait", "told")
    spec = yaml.safe_load(home.dtrain("get", "told", "-o", "yaml").out)["spec"]
    assert (spec["command"], spec["env"], spec["maxRestarts"], spec["workingDir"]) == (
        ["sh", "-c", "exit 0"], ["A=b c"], 2, str(home.folder))
    wide = home.dtrain("get", "told", "-o", "wide").out
    assert "\nCommand:     sh -c 'exit 0'\n" in wide and "\nEnv:         A=b c\n" in wide


def test_exec_takes_kubectls_flags_and_one_instance(home):
    home.submit("on", "sleep", "600", flags=["--workers=2"])
    home.running("on")
    for flags in (["-it"], ["-ti"], ["-t"], ["--stdin", "--tty"]):
        assert home.dtrain("exec", *flags, "on", "--", "echo", "-it").out == "-it\n"
    result = home.dtrain("exec", "on", "-i", "worker-0", "-i", "worker-1", "--", "true",
                         expect=EXIT_USAGE)
    assert "twice" in result.err
    home.dtrain("delete", "on")
    home.submit("over", "true")
    home.dtrain("wait", "over")
    result = home.dtrain("exec", "over", "--", "true", expect=EXIT_ENGINE)
    assert result.err == "dtrain exec: job over has ended (SUCCEEDED); nothing to exec into\n"


def test_several_jobs_logs_are_followed_to_the_last_ones_end(home):
    home.submit("a", "sh", "-c", "echo first; sleep 0.3; echo last")
    home.submit("b", "echo", "only")
    lines = home.dtrain("logs", "-f", "a", "b").out.splitlines()
    assert sorted(lines) == ["a/worker-0 | first", "a/worker-0 | last", "b/worker-0 | only"]


def test_logs_of_two_instances_leave_the_others_out(home):
    home.submit("three", "sh", "-c", "echo $RANK", flags=["--workers=3"])
    home.dtrain("wait", "three")
    assert sorted(home.lines("three", "-i", "worker-0", "-i", "worker-2")) == [
        "worker-0 | 0", "worker-2 | 2"]


def test_names_that_are_not_there_exit_with_3(home):
    for words in (["submit", "--data=nosuch:/d", "--", "true"], ["submit", "--code=nosuch"],
                  ["submit", "--profile=nosuch", "--", "true"], ["list", "--profile=nosuch"],
                  ["delete", "nosuch"], ["config", "use", "nosuch"]):
        home.dtrain(*words, expect=EXIT_NOT_FOUND)
