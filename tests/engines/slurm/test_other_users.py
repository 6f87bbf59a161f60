"""Two accounts of this machine on one Slurm. Who asks is no operator of Slurm's, as root is."""
import getpass
import os
import pathlib
import shutil
import subprocess

import pytest

from harness import EXIT_ENGINE, EXIT_NOT_FOUND

OTHER = "games"  # Debian has it everywhere, and nobody works as it.

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="root alone can be another")


@pytest.fixture
def slurm(slurm_home):
    return slurm_home


@pytest.fixture
def other(slurm, slurm_cluster):
    """Runs dtrain as the other account, in a home of its own; its jobs are deleted at the end."""
    home = pathlib.Path(slurm_cluster.folder, "home-of-the-other")
    (home / "state").mkdir(parents=True)
    for path in home, home / "state":
        shutil.chown(path, OTHER)
    (home / "bin").mkdir()
    program = shutil.copy(slurm.dtrain_path, home / "bin/dtrain")
    library = slurm.build.folder / "lib"  # Of the tarball's programs.
    if library.exists():
        shutil.copytree(library, home / "lib")

    def dtrain(*words, **env):
        return subprocess.run(
            [program, *words], user=OTHER, group="nogroup", extra_groups=[], cwd=home,
            env={**slurm.env, "HOME": str(home), "XDG_STATE_HOME": f"{home}/state",
                 "XDG_CONFIG_HOME": f"{home}/config", **env},
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    try:
        yield dtrain
    finally:
        dtrain("delete", "mine")
        shutil.rmtree(home)


def test_a_job_of_another_user_is_named_as_theirs_and_left_alone(slurm, other):
    slurm.submit("theirs", "sleep", "600", flags=["--preemptible"])
    number = slurm.running("theirs")["uuid"]
    me = getpass.getuser()
    for words in (["get", "theirs"], ["logs", "theirs"], ["delete", "theirs"], ["wait", "theirs"],
                  ["suspend", "theirs"], ["resume", "theirs"],
                  ["exec", "theirs", "--", "id"], ["attach", "theirs"], ["explain", "theirs"],
                  ["clone", "theirs", "--name=mine"]):
        # Theirs by name, and in a folder of theirs too.
        for state in {}, {"XDG_STATE_HOME": str(slurm.state)}:
            result = other(*words, **state)
            assert (result.returncode, result.stdout) == (EXIT_ENGINE, ""), (words, result)
            assert f"Slurm job {number} of that name belongs to {me}" in result.stderr, (words, result)
            assert result.stderr.count("\n") == 1
    assert slurm.running("theirs")["restarts"] == 0
    assert other("list", "-o", "name").stdout == ""


def test_the_same_name_is_another_job_of_each_user(slurm, other):
    slurm.submit("mine", "sleep", "600")
    result = other("submit", "--name=mine", "--", "id", "-un")
    assert result.returncode == 0, result
    assert other("wait", "mine").returncode == 0
    assert other("logs", "mine").stdout == f"{OTHER}\n"
    assert slurm.running("mine")["status"] == "RUNNING"
    assert other("delete", "mine").returncode == 0
    assert slurm.running("mine")["status"] == "RUNNING"


def test_as_root_in_the_home_of_another_no_file_of_theirs_is_read(slurm, other, slurm_cluster):
    """As sudo does, which may keep HOME."""
    assert other("submit", "--name=mine", "--sbatch-arg=--hold", "--", "true").returncode == 0
    state = {"XDG_STATE_HOME": f"{slurm_cluster.folder}/home-of-the-other/state"}
    for words in ["get", "mine"], ["exec", "mine", "--", "id"], ["delete", "mine"]:
        assert f"belongs to {OTHER}" in slurm.dtrain(*words, env=state, expect=EXIT_ENGINE).err
    result = slurm.dtrain("list", env=state, expect=EXIT_ENGINE)
    assert f"belongs to {OTHER}" in result.err and result.err.count("\n") == 1
    assert other("get", "mine").returncode == 0
    assert other("delete", "mine").returncode == 0
    slurm.dtrain("get", "mine", expect=EXIT_NOT_FOUND)
