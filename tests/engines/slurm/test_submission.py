"""What sbatch is given and when, told by one of the tests' own: it is started before there is a script."""
import os

import pytest

from harness import EXIT_ENGINE, EXIT_ERROR, EXIT_USAGE, alive, until

MANY = "x" * 100_000  # More than a pipe holds, in three variables.


@pytest.fixture
def slurm(home):
    (home.folder / "tools").mkdir()
    home.env.update(DTRAIN_BACKEND="slurm", PATH=f"{home.folder / 'tools'}:{home.env['PATH']}")
    sbatch(home, "echo 'sbatch: a word of warning' >&2; echo '17;far'")
    return home


def sbatch(home, ending):
    """It notes what it is given, and ends as `ending` says."""
    home.script("tools/sbatch", f"cd {home.folder}; echo $$ >pid; echo \"$*\" >words; umask >mask\n"
                                f"env >variables; cat >given; {ending}")


def folder_of(home, name):
    return home.state / "dtrain/slurm/default" / name


def test_sbatch_is_given_the_plan_and_the_users_own_mask_and_variables(slurm):
    flags = ["--name=whole", "-e", f"A={MANY}", "-e", f"B={MANY}", "-e", f"C={MANY}"]
    plan = slurm.dtrain("submit", *flags, "--dry-run", "--", "true").out
    slurm.dtrain("submit", *flags, "--", "true", env={"DTRAIN_GIT_TOKEN": "s3cret", "MARK": "kept",
                                                      "LC_ALL": "C.UTF-8"})
    folder = folder_of(slurm, "whole")
    assert (slurm.folder / "given").read_text() == plan == (folder / "script.sbatch").read_text()
    assert (slurm.folder / "words").read_text().split() == [
        "--parsable", f"--output={folder}/slurm.log", "--open-mode=append"]
    variables = (slurm.folder / "variables").read_text().splitlines()
    assert "MARK=kept" in variables and "LC_ALL=C.UTF-8" in variables
    assert not [line for line in variables if line.startswith(("DTRAIN_GIT_TOKEN", "SLURM_"))]
    mask = os.umask(0o022)
    os.umask(mask)
    assert int((slurm.folder / "mask").read_text(), 8) == mask
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    assert '"id":"17"' in (folder / "job").read_text()
    assert "a word of warning" in (folder / "submit.err").read_text()


def test_a_refused_job_leaves_no_folder(slurm):
    sbatch(slurm, "echo 'sbatch: error: Batch job submission failed: Invalid qos' >&2; exit 1")
    result = slurm.dtrain("submit", "--name=bad", "--qos=none", "--", "true", expect=EXIT_ENGINE)
    assert "Invalid qos" in result.err and "--qos=none" in result.err
    assert not folder_of(slurm, "bad").exists()


def test_an_sbatch_that_ends_before_it_reads_says_why(slurm):
    slurm.script("tools/sbatch", "echo 'sbatch: error: no slurm.conf' >&2; exit 1")
    result = slurm.dtrain("submit", "--name=none", "-e", f"A={MANY}", "-e", f"B={MANY}", "-e", f"C={MANY}",
                          "--", "true", expect=EXIT_ENGINE)
    assert "no slurm.conf" in result.err
    assert not folder_of(slurm, "none").exists()


def test_an_sbatch_that_gives_no_number_is_no_success(slurm):
    sbatch(slurm, "true")
    slurm.dtrain("submit", "--name=mute", "--", "true", expect=EXIT_ENGINE)
    assert not folder_of(slurm, "mute").exists()


def test_a_name_in_use_gives_sbatch_nothing(slurm):
    slurm.dtrain("submit", "--name=twice", "--", "true")
    before = (folder_of(slurm, "twice") / "job").read_text()
    sbatch(slurm, "touch has-read")
    result = slurm.dtrain("submit", "--name=twice", "--", "false", expect=EXIT_USAGE)
    assert "twice" in result.err
    assert not (slurm.folder / "has-read").exists()
    assert (folder_of(slurm, "twice") / "job").read_text() == before


def test_an_sbatch_that_waits_for_a_script_in_vain_is_ended(slurm):
    # It may be ended between making the file and writing to it, so that the file takes its name when whole.
    slurm.script("tools/sbatch", f"cd {slurm.folder}; echo $$ >new && mv new pid; cat >given; touch has-read")
    result = slurm.dtrain("submit", "--name=x", "--sbatch-arg=--ntasks=2", "--", "true", expect=EXIT_USAGE)
    assert "--ntasks" in result.err
    pid = slurm.folder / "pid"
    assert not pid.exists() or until(lambda: not alive(int(pid.read_text())), "sbatch ends")
    assert not (slurm.folder / "has-read").exists() and not folder_of(slurm, "x").exists()


def test_a_folder_that_cannot_be_made_is_said(slurm):
    slurm.state.mkdir()
    (slurm.state / "dtrain").write_text("")
    result = slurm.dtrain("submit", "--name=x", "--", "true", expect=EXIT_ERROR)
    assert "cannot make" in result.err and "dtrain" in result.err


def test_a_job_that_ends_while_slurm_is_asked_is_told_whole(slurm):
    slurm.dtrain("submit", "--name=short", "--", "true")
    folder = folder_of(slurm, "short")
    # The last of what it left comes between the reading of its records and the end of squeue.
    slurm.script("tools/squeue", f"sleep 0.3; printf '%s\\n' 'run default short 0 1 17' 'up default short 0 2' "
                                 f"'end default short 0 3 5' >{folder}/runs; mkdir -p {folder}/0\n"
                                 f"echo 'exit worker-0 3 5' >{folder}/0/worker-0.exit\n"
                                 f"echo 'start worker-0 node1 9 2' >{folder}/0/worker-0.start\n"
                                 "echo \"17|COMPLETING|None|$(date +%s)|2|3|node1|batch|dtrain default/short\"")
    job = slurm.get("short")
    assert (job["status"], job["cause"]["exitCode"]) == ("FAILED", 5)


@pytest.mark.parametrize("said,words", [
    ("Unable to contact slurm controller (connect failure)", "contact slurm controller"),
    ("Invalid user id", "Invalid user id"),
])
def test_what_squeue_complains_of_is_said(slurm, said, words):
    slurm.dtrain("submit", "--name=asked", "--", "true")
    slurm.script("tools/squeue", f"echo 'slurm_load_jobs error: {said}' >&2; exit 1")
    slurm.script("tools/scontrol", "echo Slurmctld is DOWN")
    assert words in slurm.dtrain("get", "asked", expect=EXIT_ENGINE).err
