"""Which of Slurm's jobs is a record's, and what is left of a submission or a deletion that is cut off: told by
stand-ins of Slurm's commands."""
import json
import os
import re
import shutil
import signal
import time

import pytest

from harness import EXIT_ENGINE, EXIT_ERROR, alive, fill, small_disk, until

TIMED_OUT = "slurm_load_jobs error: Socket timed out on send/recv operation"


@pytest.fixture
def slurm(home):
    """A Slurm that gives every job the number 17 and does not know it later."""
    (home.folder / "tools").mkdir()
    home.env.update(DTRAIN_BACKEND="slurm", PATH=f"{home.folder / 'tools'}:{home.env['PATH']}")
    home.script("tools/sbatch", "cat >/dev/null; echo 17")
    home.script("tools/scancel", f"echo \"$*\" >>{home.folder}/cancelled")
    home.script("tools/scontrol", "exit 1")
    home.script("tools/sacct", "echo Slurm accounting storage is disabled >&2; exit 1")
    has_queued(home)
    return home


def line(name="mine", state="RUNNING", age=0, number=17):
    """squeue's, of a job that was submitted so many seconds ago."""
    now = int(time.time()) - age
    return f"{number}|{state}|None|{now}|{now}|N/A|node1|batch|dtrain default/{name}"


def has_queued(slurm, *lines):
    """squeue says these, in the format that it is asked for, and notes that it was asked."""
    (slurm.folder / "queue").write_text("".join(f"{each}\n" for each in lines))
    slurm.script("tools/squeue",
                 f"cd {slurm.folder}; echo \"$*\" >>asked; [ -s queue ] || {{ echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1; }}\n"
                 "case \"$*\" in *'%F|%T|%V|%k'*) awk -F'|' -v OFS='|' '{ print $1, $2, $4, $9 }' queue ;; *) cat queue ;; esac")


def folder_of(slurm, name="mine"):
    return slurm.state / "dtrain/slurm/default" / name


def cancelled(slurm):
    return (slurm.folder / "cancelled").exists()


@pytest.mark.parametrize("other", [line("other"), line("mine2"), line(age=100_000)],
                         ids=["comment", "prefix", "time"])
def test_another_job_of_the_same_number_is_neither_told_of_nor_cancelled(slurm, other):
    slurm.submit("mine", "true")
    has_queued(slurm, other)
    assert "no record of this job" in slurm.get("mine")["reason"]
    [listed] = slurm.dtrain("list", "-o", "json").json()
    assert listed["status"] == "FAILED"
    slurm.dtrain("delete", "mine")
    assert not cancelled(slurm) and not folder_of(slurm).exists()


def old_record(text):
    """As releases of before September 2026 wrote it, a year ago."""
    job = json.loads(text.partition(" ")[2])
    del job["submitted"]
    return "job " + json.dumps({**job, "created": job["created"] - 365 * 86400 * 10**9}) + "\n"


@pytest.mark.parametrize("record", [lambda text: re.sub('"submitted":[0-9]+', '"submitted":0', text), old_record],
                         ids=["unknown", "old"])
def test_a_job_without_a_comment_is_not_cancelled_for_its_number_alone(slurm, record):
    slurm.submit("mine", "true")
    job = folder_of(slurm) / "job"
    job.write_text(record(job.read_text()))
    has_queued(slurm, line().replace("dtrain default/mine", "(null)"))
    slurm.dtrain("delete", "mine")
    assert not cancelled(slurm) and not folder_of(slurm).exists()


def test_jobs_of_an_earlier_release_are_looked_at_and_deleted(slurm, earlier_release):
    shutil.copytree(earlier_release / "state/dtrain/slurm", slurm.state / "dtrain/slurm")
    has_queued(slurm, line("another", number=17))
    assert {job["name"]: job["status"] for job in slurm.dtrain("list", "-o", "json").json()} == {
        "done": "SUCCEEDED", "failed": "FAILED"}
    assert slurm.get("failed")["reason"] == "worker-1 (rank 1) on node1 ended with exit code 7"
    assert sorted(slurm.lines("done")) == ["worker-0 | rank 0", "worker-1 | rank 1"]
    has_queued(slurm, *(line(age=100_000).replace("17|", f"{number}|").replace("dtrain default/mine", "(null)")
                        for number in (1, 2)))
    slurm.dtrain("delete", "done", "failed")
    assert not cancelled(slurm) and not folder_of(slurm, "done").exists()


@pytest.mark.parametrize("variable", ["SLURM_CONF", "DTRAIN_LOGIN_HOST"])
def test_a_job_of_another_cluster_is_not_looked_for_in_this_one(slurm, variable):
    """Nor is one that was submitted on the other's login host, where both have one home."""
    for name in "near", "far":
        (slurm.folder / name).write_text(f"# A cluster.\nClusterName={name}\n")
    slurm.script("tools/ssh", '[ "$2" != check ] || exit 1\nwhile [ "$1" != -- ]; do shift; done\n'
                              f'SLURM_CONF={slurm.folder}/$2 exec sh -c "$3"')
    value = {"SLURM_CONF": f"{slurm.folder}/%s", "DTRAIN_LOGIN_HOST": "%s"}[variable]
    near, far = ({variable: value % name} for name in ("near", "far"))
    slurm.submit("mine", "true", env=far)
    has_queued(slurm, line())
    assert slurm.dtrain("get", "mine", "-o", "json", env=far).json()["status"] == "PENDING"
    job = slurm.dtrain("get", "mine", "-o", "json", env=near).json()
    assert job["status"] == "PENDING" and "on cluster far" in job["reason"]
    [listed] = slurm.dtrain("list", "-o", "json", env=near).json()
    assert listed["status"] == "PENDING"
    for verb in "delete", "suspend":
        refused = slurm.dtrain(verb, "mine", expect=EXIT_ENGINE, env=near)
        assert "on cluster far" in refused.err and refused.err.count("\n") == 1
    assert not cancelled(slurm) and folder_of(slurm).exists()


@pytest.mark.parametrize("tool", ["squeue", "scancel"])
def test_delete_believes_only_an_answer(slurm, tool):
    slurm.submit("mine", "true")
    has_queued(slurm, line())
    if tool == "scancel":
        slurm.script("tools/scancel", f"echo 'scancel: error: {TIMED_OUT}' >&2; exit 1")
    else:  # After the first question, which finds the job.
        slurm.script("tools/squeue", f"cd {slurm.folder}; [ -e asked ] && {{ echo '{TIMED_OUT}' >&2; exit 1; }}\n"
                                     "touch asked; cat queue")
    (slurm.folder / "asked").unlink(missing_ok=True)
    result = slurm.dtrain("delete", "mine", expect=EXIT_ENGINE)
    assert "Socket timed out" in result.err and "deleted" not in result.out
    assert (folder_of(slurm) / "job").exists()


def test_delete_asks_ever_more_seldom(slurm):
    slurm.submit("mine", "true")
    has_queued(slurm, line())
    slurm.script("tools/scancel", f"{{ sleep 3; sed -i s/RUNNING/CANCELLED/ {slurm.folder}/queue; }} >/dev/null 2>&1 &")
    slurm.dtrain("delete", "mine")
    assert len((slurm.folder / "asked").read_text().splitlines()) <= 10
    assert not folder_of(slurm).exists()


def begin(slurm, sbatch):
    """A submission whose sbatch notes that it has read the script, and then does as it is told."""
    slurm.script("tools/sbatch", f"cd {slurm.folder}; cat >/dev/null; echo $$ >new && mv new pid; {sbatch}")
    program = slurm.start([slurm.dtrain_path, "submit", "--name=mine", "--", "true"], start_new_session=True)
    pid = int(slurm.wait_for_file("pid"))
    return program, pid


def test_a_submission_that_is_interrupted_is_whole(slurm):
    """As by Ctrl-C, which all of the terminal's programs get."""
    program, _ = begin(slurm, "until [ -e go ]; do sleep 0.1; done; echo 17")
    os.killpg(program.pid, signal.SIGINT)
    (slurm.folder / "go").touch()
    program.communicate(timeout=60)
    assert '"id":"17"' in (folder_of(slurm) / "job").read_text()
    has_queued(slurm, line())
    assert slurm.get("mine")["uuid"] == "17"


def test_a_submission_that_is_killed_leaves_a_job_that_is_found(slurm):
    program, pid = begin(slurm, "until [ -e go ]; do sleep 0.1; done; echo 17")
    program.kill()
    program.communicate(timeout=60)
    has_queued(slurm, line("mine2", number=16), line(number=18), line("other", number=19))
    (slurm.folder / "go").touch()
    until(lambda: not alive(pid), "sbatch ends")
    assert slurm.get("mine")["uuid"] == "18"
    assert "--name=mine" in (slurm.folder / "asked").read_text()
    slurm.script("tools/scancel", f"echo \"$*\" >>{slurm.folder}/cancelled; echo none >{slurm.folder}/queue")
    slurm.dtrain("delete", "mine")
    assert (slurm.folder / "cancelled").read_text() == "--quiet 18\n"


def test_a_submission_that_is_killed_before_slurm_has_the_job_says_so(slurm):
    program, pid = begin(slurm, "exec sleep 600")
    program.kill()
    program.communicate(timeout=60)
    os.kill(pid, signal.SIGKILL)
    has_queued(slurm, line("other"))
    assert "being submitted" in slurm.get("mine")["reason"]
    slurm.dtrain("delete", "mine")
    slurm.script("tools/sbatch", "cat >/dev/null; echo 17")
    slurm.submit("mine", "true")


def test_a_warning_that_cannot_be_written_down_loses_no_job(slurm):
    slurm.script("tools/sbatch", f"cat >/dev/null; mkdir {folder_of(slurm)}/submit.err; echo careful >&2; echo 17")
    slurm.submit("mine", "true")
    has_queued(slurm, line())
    assert slurm.get("mine")["uuid"] == "17"


def test_a_disk_that_fills_up_while_slurm_takes_a_job_loses_no_job(slurm):
    with small_disk(slurm.state) as disk:
        slurm.script("tools/sbatch", f"cat >/dev/null; cat /dev/zero >{disk}/filler 2>/dev/null; echo careful >&2; echo 17")
        slurm.submit("mine", "true")
        has_queued(slurm, line())
        assert slurm.get("mine")["uuid"] == "17"
        assert "cannot" not in slurm.dtrain("list").err
        slurm.script("tools/scancel", f"echo \"$*\" >>{slurm.folder}/cancelled; echo none >{slurm.folder}/queue")
        slurm.dtrain("delete", "mine")
        assert cancelled(slurm) and not folder_of(slurm).exists()


def test_a_full_disk_leaves_no_job_that_slurm_does_not_have(slurm):
    with small_disk(slurm.state) as disk:
        fill(disk)
        result = slurm.submit("mine", "true", expect=None)
        assert result.code in (EXIT_ENGINE, EXIT_ERROR) and "space" in result.err and result.err.count("\n") == 1
        (disk / "filler").unlink()
        slurm.submit("mine", "true")


def test_a_folder_that_a_submission_left_empty_is_no_job(slurm):
    folder = folder_of(slurm)
    folder.mkdir(parents=True)
    os.utime(folder, (time.time() - 600,) * 2)
    slurm.submit("mine", "true")
    assert (folder / "job").exists()


def test_squeue_is_asked_seldom_while_nothing_changes(slurm):
    slurm.submit("mine", "true")
    has_queued(slurm, line())
    with slurm.start([slurm.dtrain_path, "wait", "mine"]) as waits:
        until((slurm.folder / "asked").exists, "it is asked")
        time.sleep(10)
        assert len((slurm.folder / "asked").read_text().splitlines()) <= 7
        # The job's own files say how it ended: of one that ended well Slurm is not asked.
        slurm.script("tools/squeue", "exit 1")
        folder = folder_of(slurm)
        (folder / "runs").write_text("run default mine 0 1 17 node1\nup default mine 0 2 node1\n"
                                     "end default mine 0 3 0\n")
        assert waits.wait(60) == 0


def test_what_has_no_mark_was_printed_when_its_file_was_last_written_to(slurm):
    """As of a rank whose end nobody noted."""
    slurm.submit("mine", "true")
    has_queued(slurm, line())
    run = folder_of(slurm) / "0"
    run.mkdir()
    (folder_of(slurm) / "runs").write_text("run default mine 0 1 17 node1\nup default mine 0 2 node1\n")
    (run / "worker-0.start").write_text("start worker-0 node1 1 1\n")
    (run / "worker-0.out").write_text("of old\n")
    os.utime(run / "worker-0.out", (1_700_000_000,) * 2)
    assert slurm.lines("mine", "--timestamps")[0].startswith("2023-11-14T")
    assert slurm.lines("mine", "--since=1h") == []
    (slurm.folder / "asked").unlink()
    with slurm.start([slurm.dtrain_path, "logs", "-f", "--since=1h", "mine"], text=True) as follows:
        # Once how it stands, once where it is, and then, when all is printed that was there, again.
        asked = slurm.folder / "asked"
        until(lambda: asked.exists() and len(asked.read_text().splitlines()) > 2, "it follows")
        with open(run / "worker-0.out", "a") as out:
            out.write("new\n")
        told = follows.stdout.readline()
        follows.terminate()
    assert told == "new\n"
