"""Who reads what: files, parts of them, FIFOs, and what is left over of an epoch."""
import os
import re
import shutil
import struct
import threading


import idx_data
from harness import EXIT_JOB_FAILED, EXIT_OK, EXIT_USAGE, until


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
    assert "960 images" in out and "in this worker's 4 files" in out
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
    assert "in this worker's 2 files" in out and "90 steps of 4 × 32" in out
    assert float(re.search(r"held-out accuracy ([\d.]+) %", out).group(1)) > 90


def test_there_may_be_as_many_classes_as_labels_have_values(home):
    data = idx_data.write(home.folder / "emnist", classes=62)
    result = job(home, "few", 1, f"--data={data}", "--epochs=1", expect=EXIT_JOB_FAILED)
    assert re.search(r"labels are 0 to 9: are there more classes \(--classes=N\)\?", result.out), result.out
    out = job(home, "all", 2, f"--data={data}", "--classes=62", "--epochs=12").out
    assert float(re.search(r"held-out accuracy ([\d.]+) %", out).group(1)) > 90


def test_there_may_be_more_classes_than_a_byte_has_values(home):
    data = idx_data.write(home.folder / "many", train=8000, test=500, classes=1000,
                          label_type=0x0B)
    out = job(home, "many", 2, f"--data={data}", "--classes=1000", "--hidden=512",
              "--learning-rate=0.001", "--epochs=16", "--batch-size=32").out
    assert float(re.search(r"held-out accuracy ([\d.]+) %", out).group(1)) > 90
    few = home.trainer(f"--data={data}", "--classes=900", "--epochs=1", expect=1)
    assert few.err.count("\n") == 1 and "train-labels" in few.err and "0 to 899" in few.err


def test_every_worker_takes_all_with_sharding_off(home, data):
    out = job(home, "off", 2, f"--data={data}", "--auto-shard=off", "--epochs=3").out
    assert "every worker reads all" in out and "90 steps of 2 × 64" in out


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
        writer.join(timeout=60 * home.build.slowness)
        assert not writer.is_alive()
    held_out = r"held-out accuracy .*"
    assert re.search(held_out, out).group() == re.search(held_out, expected).group()


class Pipe:
    """A FIFO that a test writes as it likes, once someone reads it."""

    def __init__(self, path, content):
        os.mkfifo(path)
        self.path, self.left, self.allowed = path, content, threading.Semaphore(0)
        self.thread = threading.Thread(target=self.write, daemon=True)
        self.thread.start()

    def write(self):
        with open(self.path, "wb", buffering=0) as file:
            while self.left:
                self.allowed.acquire()
                part, self.left = self.left[:self.chunk], self.left[self.chunk:]
                file.write(part)

    def allow(self, size):
        """Write so many bytes more, or all that is left."""
        self.chunk = size
        self.allowed.release()

    def end(self):
        self.left = b""
        self.allow(0)


def piped(folder, files):
    """Training files as FIFOs, by name; the others copied."""
    folder.mkdir()
    pipes = {}
    for path in sorted(files.iterdir()):
        if path.name.startswith("train-"):
            pipes[path.name] = Pipe(folder / path.name, path.read_bytes())
        else:
            shutil.copy(path, folder)
    return pipes


def sizes(name):
    """Bytes of the header and of a sample."""
    return (16, idx_data.SIDE ** 2) if "images" in name else (8, 1)


def test_steps_begin_when_the_first_batch_has_come_through_a_fifo(home, data):
    pipes = piped(home.folder / "pipes", data)
    log = home.folder / "log"
    with log.open("wb") as file:
        run = home.start([home.trainer_path, f"--data={home.folder / 'pipes'}", "--epochs=1",
                          "--log-every=1", "--no-progress"], stdout=file, stderr=file)
    for name, pipe in pipes.items():
        head, sample = sizes(name)
        pipe.allow(head + 5 * 64 * sample)
    until(lambda: re.search(r"(?m)^step +5 ", log.read_text()), "five steps", 60)
    assert "a stream, read in order" in log.read_text()
    assert not re.search(r"(?m)^step +6 ", log.read_text()) and run.poll() is None
    for pipe in pipes.values():
        pipe.allow(len(pipe.left))
    assert run.wait(timeout=60 * home.build.slowness) == EXIT_OK
    assert re.search(r"(?m)^step +30 ", log.read_text()) and "held-out" in log.read_text()


def test_workers_take_as_many_samples_of_their_streams_as_the_shortest_has(home, data):
    """Of 1920 samples cut into 960 and 960, the second stream says that it has 340."""
    files = cut(data, home.folder / "files", 2)
    for name in idx_data.FILES["train"]:
        path = files / f"{name}-00001-of-00002"
        head, sample = sizes(name)
        raw = path.read_bytes()
        path.write_bytes(raw[:4] + struct.pack(">I", 340) + raw[8:head + 340 * sample])
    ends = []
    for run in ["first", "second"]:
        for pipe in piped(home.folder / run, files).values():
            pipe.allow(len(pipe.left))
        csv = home.folder / f"{run}.csv"
        out = job(home, run, 2, f"--data={home.folder / run}", "--epochs=1", "--log-every=1",
                  f"--csv={csv}").out
        assert "6 steps of 2 × 64" in out  # 5 · 128, then 20 + 20
        ends.append([line.split(",")[2] for line in csv.read_text().splitlines()])
    assert ends[0] == ends[1] and len(ends[0]) == 7


def test_a_stream_that_ends_before_its_samples_ends_all_workers_with_its_name(home, data):
    files = cut(data, home.folder / "files", 2)
    pipes = piped(home.folder / "pipes", files)
    short = f"{idx_data.FILES['train'][0]}-00001-of-00002"
    for name, pipe in pipes.items():
        if name == short:
            head, sample = sizes(name)
            pipe.left = pipe.left[:head + 200 * sample]
        pipe.allow(len(pipe.left))
    result = job(home, "short", 2, f"--data={home.folder / 'pipes'}", "--epochs=1",
                 expect=EXIT_JOB_FAILED)
    assert f"{short}: truncated: {200 * idx_data.SIDE ** 2} of" in result.out + result.err


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
    assert "training  1 step of" in home.trainer(*flags, "--epochs=1", "--drop-remainder").out
    none = home.trainer(f"--data={data}", "--batch-size=2000", "--epochs=1", "--drop-remainder",
                        expect=EXIT_USAGE)
    assert none.err.count("\n") == 1 and "--drop-remainder" in none.err
