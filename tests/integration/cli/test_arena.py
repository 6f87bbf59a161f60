"""Every `arena submit` line of Arena's own documentation (v0.15.5), by its flags: what it comes to
here, and that it renders for Kubernetes with no cluster at hand. arena_jobs.yaml holds the jobs;
after a change that is meant, DTRAIN_WRITE_GOLDEN=1 writes it."""
import os
import pathlib
import shlex

import pytest
import yaml

from harness import (EXIT_ENGINE, EXIT_JOB_FAILED, EXIT_NOT_FOUND, EXIT_USAGE, git_repository,
                     needs_mounts)

HERE = pathlib.Path(__file__).parent
LINES = (HERE / "arena_lines.txt").read_text().splitlines()
GOLDEN = HERE / "arena_jobs.yaml"
REFUSED = {"sparkjob": "spark-submit"}


def type_of(line):
    words = shlex.split(line)
    return words[words.index("submit") + 1]


TAKEN = [line for line in LINES if type_of(line) not in REFUSED]


@pytest.fixture
def arena(home):
    (home.folder / "test-config.json").write_text("{}\n")

    def arena(line, *more, **options):
        """The line with more flags, which come last but for the command, and win."""
        words = shlex.split(line)
        command = 0 if words[-1].startswith("-") or words[-2].startswith("--") else 1
        last = len(words) - command
        return home.dtrain(*words[:last], *more, *words[last:], **options)
    return arena


def that_ends(line):
    """The line's words, where no image has the folder that it names, with a command that ends."""
    words = [word for word in shlex.split(line)
             if not word.lower().replace("-", "").startswith("workingdir=")]
    return [*words[:-1], "exit 0"]


def test_arenas_lines_come_to_the_jobs_that_they_meant(arena, home):
    jobs = []
    for line in TAKEN:
        more = []
        if "--gang" in line:  # Its form depends on the cluster, which is asked.
            error = arena(line, "-b", "kubernetes", "--dry-run", expect=EXIT_ENGINE).err
            assert "--gang" in error and "--scheduler=volcano" in error
            more = ["--scheduler=volcano"]
        out = arena(line, "-b", "kubernetes", *more, "--dry-run", "-o", "yaml").out
        jobs.append({"line": line, "job": yaml.safe_load(out.replace(str(home.folder), "/home"))})
    if os.environ.get("DTRAIN_WRITE_GOLDEN"):
        GOLDEN.write_text(yaml.safe_dump_all(jobs, sort_keys=False))
    assert jobs == list(yaml.safe_load_all(GOLDEN.read_text()))


def runs_anywhere(line):
    """Asks for nothing that only a cluster, a repository or a claim has."""
    return not any(word in line for word in (
        "--sync", "--data", "--selector", "-selector", "--toleration", "--priority", "--image-pull",
        "rayjob", "volcanojob"))


@pytest.mark.parametrize("line", [
    pytest.param(line, marks=needs_mounts if "--config-file" in line else ())
    for line in TAKEN if runs_anywhere(line)])
def test_lines_that_need_no_cluster_run_on_this_machine(arena, home, line):
    arena(shlex.join(that_ends(line)), "--name=runs")
    home.dtrain("wait", "runs")


@pytest.mark.parametrize("line", [
    "--loglevel info submit pytorch --name=a --gpus=1 --image=i 'exit 0'",
    "submit pytorchjob --name=a --model-name=m --model-source=pvc://x --trace --pprof 'exit 0'"])
def test_flags_with_nothing_to_do_are_taken_with_a_line_each(arena, home, line):
    result = arena(line)
    home.dtrain("wait", "a")
    named = [word.split("=")[0] for word in shlex.split(line) if word.split("=")[0] in (
        "--loglevel", "--model-name", "--model-source", "--trace", "--pprof")]
    for flag in named:
        assert result.err.count(f"dtrain submit: {flag}: not") + result.err.count(
            f"dtrain submit: {flag}: dtrain") == 1, result.err


def test_sparks_and_models_servers_are_refused_with_a_line_that_says_so(home):
    for line in LINES:
        if type_of(line) in REFUSED:
            result = home.dtrain(*shlex.split(line), expect=EXIT_USAGE)
            assert REFUSED[type_of(line)] in result.err and result.err.count("\n") == 1
    result = home.dtrain("serve", "tensorflow", "--name=x", expect=EXIT_USAGE)
    assert "does not serve models" in result.err


def test_an_etjobs_command_is_one_though_it_has_lines_and_finds_arenas_variables(home):
    home.dtrain("submit", "etjob", "--name=e", "--gpus=1", "--workers=3", "--max-workers=9",
                "--min-workers=1", "echo\n  -np $((${workers}*${gpus}))\n"
                "  --min-np $((${minWorkers}*${gpus})) --max-np ${maxWorkers}\n  python main.py\n")
    home.dtrain("wait", "e")
    assert home.lines("e", "-i", "launcher-0") == ["-np 3 --min-np 1 --max-np 9 python main.py"]


def test_arenas_policies_become_ours(home):
    def job(*flags):
        return yaml.safe_load(home.dtrain("submit", "-b", "kubernetes", "--image=i", *flags,
                                          "--dry-run", "-o", "yaml", "--", "true").out)
    assert job("--job-restart-policy=OnFailure")["maxRestarts"] == 6
    assert job("--job-restart-policy=OnFailure", "--job-backoff-limit=2")["maxRestarts"] == 2
    assert job("--worker-restart-policy=Never", "--retry=3")["maxRestarts"] == 0
    assert job("--worker-affinity-policy=binpack")["binpack"] is True
    assert job("--worker-affinity-policy=spread", "--worker-affinity-constraint=required")[
        "topologySpread"] == ["node:required"]
    assert job("--spot-instance")["preemptible"] is True
    code = ["--sync-mode=git", "--sync-source=https://example.org/m.git"]
    assert job(*code, "-e", "GIT_SYNC_BRANCH=b")["syncSource"] == "https://example.org/m.git@b"
    home.dtrain("submit", "--ps-affinity-policy=spread", "--ps-affinity-constraint=required", "--",
                "true", expect=EXIT_USAGE)


def test_arenas_other_verbs_answer(home):
    home.dtrain("submit", "etjob", "--name=x", "--workers=2", "--min-workers=1", "--max-workers=4",
                "sleep 600")
    home.running("x")
    assert home.dtrain("--loglevel=info", "-n", "default", "get", "x", "-T", "etjob").out
    assert home.dtrain("scaleout", "etjob", "--name=x", "--count=1").out == (
        "job/x scaled to 3 workers\n")
    assert home.dtrain("scalein", "etjob", "--name=x", "--count=2", "--timeout=5s").out == (
        "job/x scaled to 1 worker\n")
    home.dtrain("scalein", "etjob", "--name=x", expect=EXIT_USAGE)
    assert home.dtrain("attach", "x", "echo", "here").out == "here\n"
    for words in (["top", "job"], ["top", "job", "x"], ["top", "node", "-d"], ["data", "list"],
                  ["logs", "x", "--tail", "10"], ["logs", "x", "-i", "x-launcher-0", "-t", "5"],
                  ["get", "x", "-e"], ["get", "x", "-g"], ["get", "--type=etjob", "x"],
                  ["list", "-A", "-o", "wide"], ["data", "list", "--allNamespaces"],
                  ["prune", "--since", "1h"]):
        home.dtrain(*words)
    for kind, out in (("et", "job/x\n"), ("etjob", "job/x\n"), ("mpi", ""), ("py", "")):
        assert home.dtrain("list", "-T", kind, "-o", "name").out == out
    assert "launcher-0" in home.dtrain("top", "job", "-T", "et").out
    assert home.dtrain("top", "job", "-T", "mpi").out == ""
    home.dtrain("list", "-T", "nosuch", expect=EXIT_USAGE)
    home.dtrain("top", "node", "elsewhere", expect=EXIT_NOT_FOUND)
    home.dtrain("delete", "x")


def test_a_repository_is_found_where_arena_puts_it(home):
    git_repository(home, home.folder / "served" / "models", "echo from $PWD")
    home.dtrain("submit", "tf", "--name=c", "--syncMode=git",
                f"--syncSource={home.folder}/served/models", "sh code/models/train.sh")
    home.dtrain("wait", "c")
    assert home.lines("c")[0].startswith("from ")
    git_repository(home, home.folder / "served" / "code", "echo in a repository of that name")
    home.dtrain("submit", "tf", "--name=d", "--sync-mode=git",
                f"--sync-source={home.folder}/served/code/.git", "sh train.sh")
    home.dtrain("wait", "d")
    assert home.lines("d") == ["in a repository of that name"]


def test_a_volcanojobs_tasks_are_ranks_of_this_machine_where_they_have_a_command(home):
    result = home.dtrain("submit", "volcanojob", "--name=v", "--taskImages", "a,b", "--taskName=t",
                         "--taskReplicas", "2", "--min-available=2", "--task-port=22",
                         "echo $RANK of $WORLD_SIZE $ROLE_NAME $ROLE_RANK")
    assert "--task-images: not used" in result.err and "--task-port: not needed" in result.err
    home.dtrain("wait", "v")
    assert sorted(home.lines("v")) == [
        f"t-{task}-{index} | {2 * task + index} of 4 t-{task} {index}"
        for task in range(2) for index in range(2)]
    assert home.get("v")["trainer"] == "VOLCANOJOB"
    for words, why in (
            ([], "runs no images, so a volcanojob needs a command: give it after --"),
            (["--workers=2", "true"], "use --task-images=IMAGE,… and --task-replicas=N"),
            (["--task-images=a,,b", "true"], "an empty name"),
            (["--task-replicas=4000", "true"], "at most 4096"),
            (["--", "--epochs=3"], "cannot begin with a flag")):
        error = home.dtrain("submit", "volcanojob", *words, expect=EXIT_USAGE).err
        assert why in error.splitlines()[-1]
    error = home.dtrain("submit", "tf", "--task-images=a", "true", expect=EXIT_USAGE).err
    assert "is for a volcanojob, not for a tfjob" in error


RAY = r"""
echo "$*" >> "$HOME/ray-calls"
case $1 in
  health-check) [ -e "$HOME/head" ] ;;
  start) case "$*" in
    *--head*) touch "$HOME/head" ;;
    *) ! ls "$HOME"/joining.* 2>/dev/null || exit 9
       touch "$HOME/joining.$RANK"; sleep 0.3; rm "$HOME/joining.$RANK"
       touch "$HOME/joined.$RANK" ;;
  esac ;;
esac
"""


def test_a_rayjob_starts_a_head_beside_the_first_worker_and_the_others_join(home):
    home.script("ray", RAY)
    path = {"PATH": f"{home.folder}:{os.environ['PATH']}"}
    home.dtrain("submit", "rayjob", "--name=r", "--workers=3", "--", "sh", "-c",
                "until [ -e joined.1 ] && [ -e joined.2 ]; do sleep 0.05; done; "
                "echo at $RAY_ADDRESS; exit 0", env=path)
    home.dtrain("wait", "r")
    [line] = home.lines("r", "-i", "worker-0")
    address = line.removeprefix("at ")
    calls = (home.folder / "ray-calls").read_text().splitlines()
    heads = [call for call in calls if "--head" in call]
    assert len(heads) == 1 and f"--port={address.rpartition(':')[2]}" in heads[0]
    assert sum(f"start --address={address}" in call for call in calls) == 2
    states = [each["status"] for each in home.get("r")["instances"]]
    assert states == ["Succeeded", "Terminated", "Terminated"]
    assert home.get("r")["trainer"] == "RAYJOB"


def test_a_rayjob_fails_with_its_driver_and_names_what_is_missing(home):
    home.script("ray", RAY)
    path = {"PATH": f"{home.folder}:{os.environ['PATH']}"}
    home.dtrain("submit", "ray", "--name=r", "--workers=2", "--", "sh", "-c", "exit 5", env=path)
    assert home.wait_for_end("r", expect=EXIT_JOB_FAILED)["cause"]["exitCode"] == 5
    home.dtrain("submit", "rayjob", "--name=none", "--", "true", env={"PATH": "/usr/bin:/bin"})
    job = home.wait_for_end("none", expect=EXIT_JOB_FAILED)
    assert "ray is not in PATH" in job["cause"]["lastStderr"][0]
    home.dtrain("submit", "rayjob", expect=EXIT_USAGE)
