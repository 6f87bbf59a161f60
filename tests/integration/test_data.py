"""Who reads what: files, parts of them, FIFOs, and what is left over of an epoch."""
import os
import re
import shutil
import struct
import threading

import pytest

import idx_data
from harness import EXIT_JOB_FAILED, EXIT_USAGE


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    return idx_data.write(tmp_path_factory.mktemp("idx"))


def cut(data, folder, count):
    """The same data with its training files cut into `count` parts."""
    folder.mkdir()
    for name in idx_data.FILES["test"]:
        shutil.copy(data / name, folder)
    for name, size in zip(idx_data.FILES["train"], (idx_data.SIDE ** 2, 1)):
        raw = (data / name).read_bytes()
        head = 16 if size > 1 else 8
        samples = (len(raw) - head) // size
        for i in range(count):
            begin, end = samples * i // count, samples * (i + 1) // count
            part = raw[:4] + struct.pack(">I", end - begin) + raw[8:head]
            (folder / f"{name}-{i:05}-of-{count:05}").write_bytes(
                part + raw[head + begin * size:head + end * size])
    return folder


def job(home, name, workers, *flags, **options):
    return home.dtrain("submit", f"--name={name}", f"--workers={workers}", "--wait", "--",
                       "--no-progress", *flags, **options)


def test_files_are_shared_out_between_workers_where_there_are_enough(home, data):
    parts = cut(data, home.folder / "parts", 4)
    out = job(home, "own", 2, f"--data={parts}", "--epochs=6").out
    assert "960 images" in out and "this worker's of 4 files" in out
    assert float(re.search(r"held-out accuracy ([\d.]+) %", out).group(1)) > 90
    assert "training  90 steps of 2 × 64" in out  # 6 · 1920 samples of all workers
    everything = job(home, "all", 2, f"--data={parts}", "--auto-shard=data", "--epochs=6").out
    assert "1,920 images" in everything and "files" not in everything
    whole = job(home, "whole", 2, f"--data={data}", "--epochs=6").out
    held_out = r"held-out accuracy .*"
    assert re.search(held_out, everything).group() == re.search(held_out, whole).group()


def test_a_worker_of_several_replicas_shares_its_own_files_among_them(home, data):
    parts = cut(data, home.folder / "parts", 2)
    out = job(home, "own", 2, f"--data={parts}", "--auto-shard=file", "--batch-size=32",
              "--devices=cpu:0,cpu:1", "--epochs=6").out
    assert "this worker's of 2 files" in out and "90 steps of 4 × 32" in out
    assert float(re.search(r"held-out accuracy ([\d.]+) %", out).group(1)) > 90


def test_every_worker_takes_all_with_sharding_off(home, data):
    out = job(home, "off", 2, f"--data={data}", "--auto-shard=off", "--epochs=3").out
    assert "every worker takes all" in out and "90 steps of 2 × 64" in out


def test_fewer_files_than_workers_and_a_missing_one_are_one_line(home, data):
    parts = cut(data, home.folder / "parts", 2)
    few = job(home, "few", 3, f"--data={parts}", "--auto-shard=file", expect=EXIT_JOB_FAILED)
    assert "2 files with images to train on, for 3 workers" in few.out
    lost = next(parts.glob("train-images-*-00001-of-00002"))
    lost.unlink()
    missing = home.trainer(f"--data={parts}", expect=1)
    assert missing.err.count("\n") == 1 and lost.name in missing.err
    mixed = home.trainer(f"--data={data}", "--auto-shard=off", "--batch-split=speed",
                         expect=EXIT_USAGE)
    assert mixed.err.count("\n") == 1 and "--auto-shard=off" in mixed.err


def feed(fifo, source):
    """Writes a file into a FIFO once someone reads it."""
    content = source.read_bytes()
    os.mkfifo(fifo)

    def write():
        with open(fifo, "wb") as file:
            file.write(content)
    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    return thread


def test_each_worker_trains_on_what_comes_through_its_own_fifo(home, data):
    files = cut(data, home.folder / "files", 2)
    expected = job(home, "files", 2, f"--data={files}", "--epochs=2").out
    fifos = home.folder / "fifos"
    fifos.mkdir()
    writers = []
    for path in sorted(files.iterdir()):
        if path.name.startswith("train-"):
            writers.append(feed(fifos / path.name, path))
        else:
            shutil.copy(path, fifos)
    out = job(home, "fifos", 2, f"--data={fifos}", "--epochs=2").out
    for writer in writers:
        writer.join(timeout=10)
        assert not writer.is_alive()
    held_out = r"held-out accuracy .*"
    assert re.search(held_out, out).group() == re.search(held_out, expected).group()


def test_a_fifo_that_workers_would_share_is_refused_before_it_is_read(home, data):
    folder = home.folder / "shared"
    folder.mkdir()
    for path in data.iterdir():
        shutil.copy(path, folder)
    name = idx_data.FILES["train"][0]
    (folder / name).unlink()
    os.mkfifo(folder / name)
    result = job(home, "shared", 2, f"--data={folder}", expect=EXIT_JOB_FAILED)
    assert re.search(rf"{name}: a FIFO that 2 workers would read.*{name}-00000-of-00002",
                     result.out), result.out
    bare = home.trainer(f"--data={folder / name}", expect=EXIT_USAGE)
    assert bare.err.count("\n") == 1 and "a FIFO; put it into a folder" in bare.err


def test_the_last_samples_of_the_epochs_are_filled_up_or_dropped(home, data):
    flags = [f"--data={data}", "--batch-size=1000"]
    assert "training  2 steps" in home.trainer(*flags, "--epochs=1").out
    assert "training  1 steps" in home.trainer(*flags, "--epochs=1", "--drop-remainder").out
    none = home.trainer(f"--data={data}", "--batch-size=2000", "--epochs=1", "--drop-remainder",
                        expect=EXIT_USAGE)
    assert none.err.count("\n") == 1 and "--drop-remainder" in none.err
