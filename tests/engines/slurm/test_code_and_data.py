"""What ranks find on their nodes: the code that was brought for them, and data where it lies."""
import os

import pytest

from harness import EXIT_JOB_FAILED, EXIT_NOT_FOUND, EXIT_USAGE, git_repository


@pytest.fixture
def slurm(slurm_home):
    return slurm_home


def test_a_folder_of_code_is_where_every_rank_starts(slurm):
    code = slurm.folder / "my code"
    (code / "sub").mkdir(parents=True)
    (code / "sub/run").write_text("#!/bin/sh\necho of $RANK; cat ../data; pwd\n")
    (code / "sub/run").chmod(0o755)
    (code / "data").write_text("before\n")
    (code / "secret").write_text("not this\n")
    (code / ".dtrainignore").write_text("secret\n")
    slurm.dtrain("submit", "--name=code", "--workers=2", "--worker-cpu=8", "--sync-mode=local",
                 f"--sync-source={code}", "--working-dir=sub", "--", "./run")
    (code / "data").write_text("after\n")
    slurm.wait_for_end("code", 0)
    folder = slurm.state / "dtrain/slurm/default/code/code"
    for rank in range(2):
        assert slurm.lines("code", "-i", f"worker-{rank}") == [f"of {rank}", "before",
                                                               f"{folder}/sub"]
    assert sorted(path.name for path in folder.iterdir()) == ["data", "sub"]
    slurm.dtrain("delete", "code")
    assert not folder.exists()


def test_code_comes_from_git_at_a_ref(slurm):
    git = git_repository(slurm, slurm.folder / "repo", "echo first")
    git("branch", "old")
    (slurm.folder / "repo/train.sh").write_text("echo second\n")
    git("commit", "--quiet", "-am", "second")
    slurm.dtrain("submit", "--name=git", "--sync-mode=git",
                 f"--sync-source=file://{slurm.folder}/repo@old", "--wait", "--", "sh", "train.sh")
    assert slurm.lines("git", "-i", "worker-0") == ["first"]


def test_code_that_cannot_be_had_leaves_no_job(slurm):
    result = slurm.dtrain("submit", "--name=bad", "--sync-mode=git", "--sync-source=file:///nowhere",
                          "--", "true", expect=EXIT_USAGE)
    assert "file:///nowhere" in result.err and result.err.count("\n") == 1
    assert slurm.dtrain("list", "-o", "name").out == ""


def test_data_is_taken_where_it_lies(slurm):
    data = slurm.folder / "my data"
    data.mkdir()
    (data / "file").write_text("here\n")
    slurm.dtrain("submit", "--name=data", f"--data-dir={data}", "--wait", "--", "cat", data / "file")
    assert slurm.lines("data", "-i", "worker-0") == ["here"]
    result = slurm.dtrain("submit", f"--data-dir={data}:/data", "--", "true", expect=EXIT_USAGE)
    assert f"--data-dir={data}" in result.err and result.err.count("\n") == 1


def test_a_node_that_lacks_the_data_is_named(slurm):
    slurm.dtrain("submit", "--name=lacks", "--data-dir=/no/such data", "--", "true")
    slurm.dtrain("wait", "lacks", expect=EXIT_JOB_FAILED)
    assert slurm.get("lacks")["cause"]["lastStderr"] == ["dtrain: node1 has no /no/such data"]


def test_where_ranks_start_counts_from_where_submit_was_called(slurm):
    (slurm.folder / "here/below").mkdir(parents=True)
    slurm.submit("below", "pwd", flags=["--working-dir=below"], cwd=slurm.folder / "here")
    slurm.wait_for_end("below", 0)
    assert slurm.lines("below", "-i", "worker-0") == [f"{slurm.folder}/here/below"]


def test_what_a_job_wrote_is_copied_from_the_disk_that_nodes_share(slurm):
    code = slurm.folder / "code"
    code.mkdir()
    (code / "train").write_text("mkdir -p ckpt && echo $RANK >ckpt/$RANK\n")
    slurm.dtrain("submit", "--name=wrote", "--workers=2", "--sync-mode=local", f"--sync-source={code}",
                 "--env=PATH_OF=it's $HOME", "--", "sh", "train")
    slurm.wait_for_end("wrote", 0)
    here = slurm.folder / "here"
    here.mkdir()
    slurm.dtrain("cp", "wrote:ckpt", here)
    assert sorted(path.read_text() for path in (here / "ckpt").iterdir()) == ["0\n", "1\n"]
    slurm.dtrain("cp", "wrote/worker-1:ckpt/1", here / "one")
    assert (here / "one").read_text() == "1\n"
    result = slurm.dtrain("cp", "wrote:none", here, expect=EXIT_NOT_FOUND)
    assert "none" in result.err and result.err.count("\n") == 1
    assert sorted(os.listdir(here)) == ["ckpt", "one"]
