"""dtrain cp: a job's files, here."""
import os
import shutil
import signal

import pytest

from harness import EXIT_ENGINE, EXIT_NOT_FOUND, EXIT_USAGE, needs_mounts, until

TAR = shutil.which("tar")


@pytest.fixture
def here(home):
    folder = home.folder / "here"
    folder.mkdir()
    return folder


@pytest.fixture
def job(home):
    """One that has ended, which wrote where its code is."""
    code = home.folder / "code"
    code.mkdir()
    (code / "train").write_text(
        "mkdir -p ckpt/step-7\nprintf 'weights\\0' >ckpt/step-7/model\nchmod 750 ckpt/step-7/model\n"
        "ln -s step-7 ckpt/latest\nln -s /etc/passwd ckpt/away\nmkfifo ckpt/pipe\n"
        "echo odd >\"ckpt/two  words\"\nhead -c 3000000 /dev/urandom >ckpt/large\n")
    home.submit("mnist", "sh", "train", flags=["--sync-mode=local", f"--sync-source={code}"])
    home.wait_for_end("mnist", 0)
    return "mnist"


def test_what_a_job_wrote_is_copied_after_its_end(home, job, here):
    result = home.dtrain("cp", f"{job}:ckpt", here)
    copy = here / "ckpt"
    assert sorted(os.listdir(copy)) == ["large", "latest", "step-7", "two  words"]
    assert (copy / "latest/model").read_bytes() == b"weights\0"
    assert os.readlink(copy / "latest") == "step-7"
    assert (copy / "step-7/model").stat().st_mode & 0o777 == 0o750
    assert "away: a link to /etc/passwd" in result.err and "pipe: neither" in result.err
    home.dtrain("cp", "-q", f"job/{job}/worker-0:ckpt/two  words", here / "name")
    assert (here / "name").read_text() == "odd\n"
    home.dtrain("cp", "-q", f"{job}:ckpt/latest", here / "new")  # A link's folder.
    assert os.listdir(here / "new") == ["model"]
    home.dtrain("cp", "-q", f"{job}:", here)
    assert "train" in os.listdir(here / "mnist")
    assert sorted(os.listdir(here)) == ["ckpt", "mnist", "name", "new"]


def test_files_replace_files_and_folders_are_joined(home, job, here):
    old = here / "ckpt"
    (old / "step-7").mkdir(parents=True)
    (old / "step-7/model").write_text("old")
    (old / "step-7/mine").write_text("kept")
    home.dtrain("cp", f"{job}:ckpt", here)
    assert (old / "step-7/model").read_bytes() == b"weights\0"
    assert (old / "step-7/mine").read_text() == "kept"
    shutil.rmtree(old)
    old.mkdir()
    (old / "step-7").write_text("a file")
    result = home.dtrain("cp", f"{job}:ckpt", here, expect=EXIT_USAGE)
    assert "step-7" in result.err and result.err.count("\n") == 1
    assert os.listdir(here) == ["ckpt"] and os.listdir(old) == ["step-7"]


@pytest.mark.parametrize("words, code, why", [
    (["mnist:none", "."], EXIT_NOT_FOUND, "none"),
    (["nobody:x", "."], EXIT_NOT_FOUND, "nobody"),
    (["mnist/worker-7:x", "."], EXIT_NOT_FOUND, "worker-7"),
    (["mnist/worker-0:x", ".", "-i", "worker-0"], EXIT_USAGE, "twice"),
    (["train", "mnist:ckpt"], EXIT_USAGE, "not to one"),
    (["ckpt", "."], EXIT_USAGE, "JOB:PATH"),
    (["mnist:ckpt", "no/such/folder"], EXIT_USAGE, "no/such"),
    (["mnist:ckpt/pipe", "."], EXIT_ENGINE, "neither"),
])
def test_what_cannot_be_copied_is_said_in_a_line(home, job, here, words, code, why):
    result = home.dtrain("cp", *words, cwd=here, expect=code)
    assert why in result.err and result.err.count("\n") == 1, result.err
    assert os.listdir(here) == []


@pytest.mark.parametrize("tar, why", [
    (f'{TAR} "$@" | head -c 100000', "was interrupted"),
    (f'{TAR} "$@"; echo "tar: ./ckpt: Cannot open: Permission denied" >&2; exit 2', "Permission denied"),
    (f'{TAR} "$@" | head -c 100000; kill -9 $$', "137"),
    ("echo no archive, but of some length; head -c 2000 /dev/zero | tr '\\0' x", "bad archive"),
])
def test_half_a_copy_is_none(home, job, here, tar, why):
    home.stand_in("tar", tar)
    result = home.dtrain("cp", f"{job}:ckpt", here, expect=EXIT_ENGINE)
    assert why in result.err and result.err.count("\n") == 1, result.err
    assert os.listdir(here) == []


def test_what_is_written_meanwhile_is_copied_as_it_was(home, job, here):
    home.stand_in("tar", f'{TAR} "$@"; echo "tar: ./x: file changed as we read it" >&2; exit 1')
    home.dtrain("cp", f"{job}:ckpt", here)
    assert (here / "ckpt/step-7/model").exists()


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_copy_leaves_nothing(home, job, here, number, code):
    home.stand_in("tar", f'{TAR} "$@" | head -c 1000000; exec sleep 600')
    with home.start([home.dtrain_path, "cp", f"{job}:ckpt", here], start_new_session=True) as copy:
        until(lambda: any(os.scandir(here)) and any(os.scandir(next(here.iterdir()))), "some has come")
        os.killpg(copy.pid, number)
        assert copy.communicate(timeout=60)[1].count(b"\n") == 1
    assert copy.returncode == code and os.listdir(here) == []


@needs_mounts
def test_a_path_of_the_jobs_data_is_found(home, here):
    data = home.folder / "data"
    data.mkdir()
    home.submit("out", "sh", "-c", "echo result >/dtrain-test/data/result",
                flags=[f"--data-dir={data}:/dtrain-test/data"])
    home.wait_for_end("out", 0)
    home.dtrain("cp", "out:/dtrain-test/data/result", here)
    assert (here / "result").read_text() == "result\n"
