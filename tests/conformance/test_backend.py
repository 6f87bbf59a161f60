"""What every backend must do alike. Ranks speak through their logs alone, so that the same tests
hold where no file is shared."""
import os

import pytest

from harness import EXIT_JOB_FAILED, EXIT_NOT_FOUND, EXIT_USAGE, until

# Prints this process's arguments and variables as the kernel has them, in hexadecimal. The image
# of an engine of containers may have a shell and little else.
DUMP = ("dump() { echo $1 $(od -An -v -tx1 /proc/$$/$2 | tr -d ' \\n'); };"
        "dump argv cmdline; dump env environ")

HOSTILE = [
    b"", b" ", b"two words", b"it's", b'say "hi"', b"line\nbreak", b"\ttab\r", b"$HOME", b"${x}",
    b"`id`", b"$(id)", b"#5", b"a # b", b"{{name}}", b"{{{x}}}", b"a: b", b"- x", b"*", b"\\n",
    b"!!binary x", b"&a", b"%d %s", b"~", b"null", b"yes", b"0x10", b"1e3", b";", b"|", b"&&",
    b"\x01\x7f", b"caf\xc3\xa9", b"\xff\xfe\x80", b"\xed\xa0\x80", b"--", b"-", b"--name=x",
    "\u2028\u0085\ufeff".encode(), b"~/x", b"~root", b"a=~/b", b"-n", b"+x", b"%1", b"^", b"!!",
]


def dumped(engine, name):
    """Argument vector and variables that the job's first rank found, as bytes."""
    found = dict(line.split(" ", 1) for line in engine.lines(name, "-i", "worker-0"))
    argv = bytes.fromhex(found["argv"]).split(b"\0")[:-1]
    entries = bytes.fromhex(found["env"]).split(b"\0")[:-1]
    return argv, dict(entry.split(b"=", 1) for entry in entries)


def texts(arguments):
    return [os.fsdecode(argument) for argument in arguments]


def test_a_job_lives_from_submit_to_delete(engine):
    engine.submit("life", "sh", "-c", "echo rank $RANK of $WORLD_SIZE", flags=["--workers=3"])
    engine.wait("life")
    job = engine.get("life")
    assert job["status"] == "SUCCEEDED"
    assert [instance["name"] for instance in job["instances"]] == [
        "worker-0", "worker-1", "worker-2"]
    assert [instance["chief"] for instance in job["instances"]] == [True, False, False]
    for rank in range(3):
        assert engine.lines("life", "-i", f"worker-{rank}") == [f"rank {rank} of 3"]
    assert "life" in engine.dtrain("list", "-o", "name").out
    engine.dtrain("delete", "life")
    engine.dtrain("get", "life", expect=EXIT_NOT_FOUND)
    assert "life" not in engine.dtrain("list", "-o", "name").out


def test_a_running_job_says_so(engine):
    engine.submit("runs", "sleep", "600", flags=["--workers=2"])
    until(lambda: engine.get("runs")["status"] == "RUNNING", "the job runs")
    assert all(instance["node"] for instance in engine.get("runs")["instances"])
    engine.dtrain("delete", "runs")


def test_arguments_arrive_byte_exact(engine):
    engine.submit("argv", "sh", "-c", DUMP, *texts(HOSTILE))
    engine.wait("argv")
    assert dumped(engine, "argv")[0][3:] == HOSTILE


def test_variables_arrive_byte_exact(engine):
    values = {b"V%d" % i: value for i, value in enumerate(HOSTILE)}
    flags = [f"--env={os.fsdecode(name + b'=' + value)}" for name, value in values.items()]
    engine.submit("env", "sh", "-c", DUMP, flags=flags)
    engine.wait("env")
    environment = dumped(engine, "env")[1]
    assert {name: environment.get(name) for name in values} == values


# What the fake devices of a cluster of containers are told by: there each container has its own alone.
SHOW_GPUS = ("sh", "-c", "echo $LOCAL_RANK $LOCAL_WORLD_SIZE "
             "${CUDA_VISIBLE_DEVICES-$NVIDIA_VISIBLE_DEVICES}")


@pytest.mark.parametrize("workers, gpus", [(3, 1), (2, 2)])
def test_local_rank_indexes_the_gpus_that_a_rank_sees_and_no_two_reach_the_same(engine, workers, gpus):
    if not engine.takes("--gpus"):
        pytest.skip("its ranks have no GPUs")
    engine.submit("gpus", *SHOW_GPUS, flags=[f"--workers={workers}", f"--gpus={gpus}"],
                  env={"DTRAIN_LOCAL_GPUS": "4"})
    engine.wait("gpus")
    reached = []
    for instance in engine.get("gpus")["instances"]:
        local_rank, local_size, visible = engine.lines("gpus", "-i", instance["name"])[0].split()
        visible = visible.split(",")
        assert 0 <= int(local_rank) < int(local_size)
        if gpus == 1:
            reached.append((instance["node"], visible[int(local_rank)]))
        else:
            assert (local_rank, local_size, len(visible)) == ("0", "1", gpus)
            reached += [(instance["node"], device) for device in visible]
    assert len(set(reached)) == len(reached) == workers * gpus


def test_output_is_byte_exact_and_keeps_its_last_line(engine):
    engine.submit("bytes", "printf", r"caf\303\251 \377\nno newline")
    engine.wait("bytes")
    result = engine.dtrain("logs", "bytes", "-i", "worker-0")
    assert os.fsencode(result.out).startswith(b"caf\xc3\xa9 \xff\nno newline")


def test_a_failure_names_its_cause(engine):
    engine.submit("fails", "sh", "-c",
                  "[ $RANK = 1 ] || exec sleep 600; echo no such layer >&2; exit 7",
                  flags=["--workers=3"])
    engine.wait("fails", expect=EXIT_JOB_FAILED)
    job = engine.get("fails")
    assert job["status"] == "FAILED"
    cause = job["cause"]
    assert (cause["instance"], cause["rank"], cause["exitCode"]) == ("worker-1", 1, 7)
    assert cause["lastStderr"] == ["no such layer"]
    assert "worker-1" in engine.dtrain("get", "fails").out


def test_a_rank_ended_by_a_signal_names_it(engine):
    engine.submit("killed", "sh", "-c", "[ $RANK = 0 ] && kill -KILL $$; exec sleep 600",
                  flags=["--workers=2"])
    engine.wait("killed", expect=EXIT_JOB_FAILED)
    cause = engine.get("killed")["cause"]
    assert (cause["instance"], cause["signal"]) == ("worker-0", "SIGKILL")


def test_a_command_that_does_not_exist_is_named(engine):
    """By submit where it can know, else by the job that fails."""
    result = engine.submit("absent", "/no/such/program", expect=None)
    if result.code == 0:
        result = engine.wait("absent", expect=EXIT_JOB_FAILED)
    assert "/no/such/program" in result.err


def test_the_whole_gang_is_restarted(engine, gang_flags):
    engine.submit("gang", "sh", "-c",
                  "echo run $DTRAIN_RESTART_COUNT; [ $DTRAIN_RESTART_COUNT = 0 ] || exit 0; "
                  "[ $RANK = 0 ] && exec sleep 600; exit 3",
                  flags=["--workers=2", "--max-restarts=2", *gang_flags])
    engine.wait("gang")
    assert engine.get("gang")["restarts"] == 1
    for name in "worker-0", "worker-1":
        assert engine.lines("gang", "-i", name) == ["run 1"]
    if not gang_flags:  # A JobSet deletes the Pods of the run before, and their logs go with them.
        assert engine.lines("gang", "-i", "worker-1", "--prev") == ["run 0"]


def test_the_run_before_a_restart_can_be_read(engine):
    engine.submit("again", "sh", "-c",
                  # Only the one that has written fails: the other is ended then, or ends by itself.
                  "echo run $DTRAIN_RESTART_COUNT; [ $DTRAIN_RESTART_COUNT = 1 ] && exit 0; "
                  "[ $RANK = 1 ] && exit 1; exec sleep 5",
                  flags=["--workers=2", "--max-restarts=2"])
    engine.wait("again")
    assert engine.get("again")["restarts"] == 1
    assert engine.lines("again", "-i", "worker-1") == ["run 1"]
    assert engine.lines("again", "-i", "worker-1", "--prev") == ["run 0"]


def test_restarts_are_bounded(engine):
    engine.submit("bounded", "false", flags=["--max-restarts=2"])
    engine.wait("bounded", expect=EXIT_JOB_FAILED)
    assert engine.get("bounded")["restarts"] == 2


def test_a_name_in_use_is_refused_and_its_job_goes_on(engine):
    engine.submit("taken", "sleep", "600")
    before = engine.get("taken")["uuid"]
    result = engine.submit("taken", "true", expect=EXIT_USAGE)
    assert "taken" in result.err and result.err.count("\n") == 1
    assert engine.get("taken")["uuid"] == before
    engine.dtrain("delete", "taken")


def test_the_same_name_lives_in_two_namespaces(engine):
    engine.submit("twin", "echo", "a", flags=["--namespace=team-a"])
    engine.submit("twin", "echo", "b", flags=["--namespace=team-b"])
    for namespace in "ab":
        engine.dtrain("wait", "twin", f"--namespace=team-{namespace}")
        assert engine.lines("twin", f"--namespace=team-{namespace}", "-i", "worker-0") == [namespace]
    engine.dtrain("get", "twin", expect=EXIT_NOT_FOUND)
    engine.dtrain("delete", "twin", "--namespace=team-a")
    assert engine.get("twin", "--namespace=team-b")["status"] == "SUCCEEDED"


def test_delete_ends_a_running_job_and_may_be_repeated(engine):
    engine.submit("gone", "sleep", "600", flags=["--workers=2"])
    engine.dtrain("delete", "gone")
    again = engine.dtrain("delete", "gone", expect=EXIT_NOT_FOUND)
    assert again.out == "" and "'gone'" in again.err and again.err.count("\n") == 1
    assert "'gone'" in engine.dtrain("delete", "gone", "--ignore-not-found").err
    engine.submit("gone", "true")  # the name is free again
    engine.wait("gone")


def test_waiting_for_several_tells_of_each_as_it_ends(engine):
    engine.submit("long", "sleep", "600")
    engine.submit("well", "true")
    engine.submit("fails", "sh", "-c", "exit 3")
    with engine.home.start([engine.home.dtrain_path, "wait", *engine.flags, "--timeout=2m", "long",
                            "well", "fails"]) as waiting:
        assert waiting.stdout.readline().startswith(b"job/well succeeded in ")
        assert any(b"job/fails failed: " in line and b"code 3" in line
                   for line in waiting.stderr)
        engine.dtrain("delete", "long")
        # Deleted, or, where the engine ends a job before it forgets it, failed.
        assert any(b"long was deleted" in line or b"job/long failed: " in line
                   for line in waiting.stderr)
        assert waiting.wait() in (EXIT_NOT_FOUND, EXIT_JOB_FAILED)


@pytest.mark.parametrize("verb", ["get", "logs", "wait"])
def test_a_job_that_is_not_there_is_not_found(engine, verb):
    result = engine.dtrain(verb, "nobody", expect=EXIT_NOT_FOUND)
    assert "nobody" in result.err and result.err.count("\n") == 1 and result.out == ""


def test_a_dry_run_submits_nothing_and_its_file_submits_the_same(engine):
    flags = [*engine.flags, *engine.submit_flags, "--name=dry", "--workers=2", "--env=A=b c", "--max-restarts=1"]
    command = ["--", "echo", "{{x}}", "$HOME", "#"]
    job = engine.home.dtrain("submit", *flags, "--dry-run", "-o", "yaml", *command).out
    engine.dtrain("get", "dry", expect=EXIT_NOT_FOUND)
    path = engine.home.folder / "job.yaml"
    path.write_text(job)
    plan = engine.home.dtrain("submit", *flags, "--dry-run", *command).out
    assert engine.home.dtrain("submit", "-f", path, "--dry-run").out == plan
    assert engine.home.dtrain("submit", "-f", path, "--dry-run", "-o", "yaml").out == job
    engine.home.dtrain("submit", "-f", path)
    engine.wait("dry")
    assert engine.lines("dry", "-i", "worker-0") == ["{{x}} $HOME #"]


def test_following_logs_waits_for_the_job_and_ends_with_it(engine):
    engine.submit("follow", "sh", "-c", "echo first; sleep 0.3; echo last")
    assert engine.lines("follow", "-f", "-i", "worker-0") == ["first", "last"]


def test_what_a_rank_wrote_is_copied_here(engine):
    # A container's / is root's.
    writable = ["--working-dir=/tmp"] if "--backend=kubernetes" in engine.flags else []
    engine.submit("files", "sh", "-c",
                  "mkdir -p out-$RANK/deep && echo $RANK >out-$RANK/deep/rank && "
                  "ln -s deep/rank out-$RANK/link && echo written; exec sleep 600",
                  flags=["--workers=2", *writable])
    here = engine.home.folder / "here"
    here.mkdir()
    if "cp" not in engine.lacks():
        until(lambda: all(engine.lines("files", "-i", f"worker-{rank}") == ["written"] for rank in (0, 1)),
              "both have written")
        engine.dtrain("cp", "files:out-0", here)
        engine.dtrain("cp", "files/worker-1:out-1/deep/rank", here / "one")
        assert (here / "out-0/deep/rank").read_text() == "0\n"
        assert os.readlink(here / "out-0/link") == "deep/rank"
        assert (here / "one").read_text() == "1\n"
        result = engine.dtrain("cp", "files:none", here, expect=EXIT_NOT_FOUND)
        assert "none" in result.err and result.err.count("\n") == 1
        assert sorted(os.listdir(here)) == ["one", "out-0"]
    engine.dtrain("delete", "files")


def test_what_the_table_says_that_a_backend_cannot_do_is_refused_and_all_else_is_there(engine):
    engine.submit("able", "sleep", "600")
    until(lambda: engine.get("able")["status"] == "RUNNING", "the job runs")
    asked = {
        "exec": ("exec", "able", "--", "true"),
        "cp": ("cp", "able:none", engine.home.folder),
        "top node": ("top", "node"),
        "top job": ("top", "job", "able"),
        "scale": ("scale", "able", "--workers=1"),
        "--dry-run=server": ("submit", *engine.submit_flags, "--dry-run=server", "--", "true"),
        "suspend": ("suspend", "able"),
    }
    lacks = engine.lacks()
    assert set(lacks) <= set(asked)
    for ability, words in asked.items():
        verb = words[:2] if words[0] == "top" else words[:1]
        result = engine.home.dtrain(*verb, *engine.flags, *words[len(verb):], expect=None)
        if ability in lacks:
            assert result.code == EXIT_USAGE and result.out == ""
            assert lacks[ability].partition(": it ")[2] in result.err
        else:
            # A job may be one that cannot be scaled; that its table leaves out a function is a defect.
            assert result.code != EXIT_USAGE or ability == "scale", result.err
            assert "its table" not in result.err
    engine.dtrain("delete", "able")
