"""The bundled trainer, alone and under `submit`, on a small data set in MNIST's form."""
import json
import os
import re
import signal
import socket
import struct
import subprocess
import time

import pexpect
import pytest

import idx_data
from checkpoint_files import checkpoints, last_saved, tensors
from harness import EXIT_OK, EXIT_USAGE, alive, held_ports, until
from trainer_process import NO_END, ending_when_told, gang_env, losses, tell_end

def all_text(result):
    return result.out + result.err


def held_out_accuracy(result):
    return float(re.search(r"held-out accuracy ([\d.]+) %", result.out).group(1))


@pytest.fixture
def gang(home, data):
    """Starts ranks by hand, as torchrun's users do: no supervisor watches them."""
    ranks = []

    def start(size, *flags):
        [port] = held_ports(1)
        for rank in range(size):
            out = open(home.folder / f"rank-{rank}.out", "w+b")
            ranks.append(home.start(
                [home.trainer_path, f"--data={data}", "--log-every=10", *flags],
                env=gang_env(rank, size, port), stdout=out, stderr=out))
            ranks[-1].output = home.folder / f"rank-{rank}.out"
        return ranks
    yield start
    for rank in ranks:
        if rank.poll() is None:
            rank.kill()
        rank.wait()


def at_work(ranks):
    until(lambda: re.search(r"step\D+20\b", ranks[0].output.read_text(errors="replace")),
          "the gang trains")


def test_three_workers_learn(home, data):
    result = home.dtrain("submit", "--name=learn", "--workers=3", "--wait", "--",
                         f"--data={data}", "--epochs=6")
    assert held_out_accuracy(result) > 90
    assert home.get("learn")["trainer"]


def test_one_process_learns_from_compressed_files(home):
    folder = idx_data.write(home.folder / "gz", compress=True)
    assert held_out_accuracy(home.trainer(f"--data={folder}", "--epochs=6")) > 90


def test_choices_are_printed_once_at_the_start(home, data):
    text = all_text(home.dtrain("submit", "--workers=3", "--wait", "--", f"--data={data}",
                                "--epochs=1"))
    for word in ("ranks", "network", "device", "data", "training"):
        assert len(re.findall(rf"\| {word} ", text)) == 1, (word, text)
    assert "seed 0" in text


def test_a_log_line_has_loss_accuracy_and_speed(train):
    lines = [line for line in all_text(train("--epochs=1", "--log-every=10")).splitlines()
             if re.search(r"\bstep\b", line)]
    assert len(lines) >= 3
    assert all(word in lines[1] for word in ("loss", "accuracy", "samples/s"))


def test_the_same_seed_gives_the_same_bits_and_another_does_not(home, data):
    results = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        folder = home.folder / name
        home.dtrain("submit", f"--name={name}", "--workers=3", "--wait", "--", f"--data={data}",
                    "--epochs=2", f"--seed={seed}", f"--checkpoint-dir={folder}")
        results.append(tensors(checkpoints(folder)[-1]))
    assert results[0] == results[1] != results[2]


def test_gradients_of_half_the_bytes_train_as_well_by_every_transport(home, data):
    """The same bits over TCP as by shared memory, other bits than fp32's, and near them."""
    ends, losses = {}, {}
    for kind in ("fp32", "bf16", "fp16"):
        for transport in ("tcp", "shm"):
            folder = home.folder / f"{kind}-{transport}"
            path = home.folder / f"{kind}-{transport}.csv"
            out = home.dtrain("submit", "--workers=3", "--wait", "--", f"--data={data}",
                              "--epochs=4", f"--transport={transport}", f"--csv={path}",
                              "--log-every=40", f"--communication-data-type={kind}",
                              f"--checkpoint-dir={folder}").out
            assert (f"gradients as {kind}" in out) == (kind != "fp32")
            ends[kind, transport] = tensors(checkpoints(folder)[-1])
            losses[kind] = float(path.read_text().splitlines()[1].split(",")[2])
        assert ends[kind, "tcp"] == ends[kind, "shm"]
    assert ends["fp32", "tcp"] != ends["bf16", "tcp"] != ends["fp16", "tcp"]
    assert losses["bf16"] == pytest.approx(losses["fp32"], rel=0.05)
    assert losses["fp16"] == pytest.approx(losses["fp32"], rel=0.05)


def test_workers_with_several_replicas_have_the_losses_of_one_process(home, data):
    """Two workers of two replicas, one worker of four, four of one: the same global batch."""
    def trained(name, workers, batch, *flags):
        path = home.folder / f"{name}.csv"
        home.dtrain("submit", f"--name={name}", f"--workers={workers}", "--wait", "--",
                    f"--data={data}", f"--batch-size={batch}", "--steps=60", "--log-every=20",
                    f"--csv={path}", *flags)
        return losses(path)

    alone = trained("alone", 1, 64)
    assert len(alone) == 3
    two = "--devices=cpu:0,cpu:1"
    for name, workers, flags in (("wide", 2, [two]), ("tcp", 2, [two, "--transport=tcp"]),
                                 ("mirrored", 1, ["--devices=cpu:0,cpu:1,cpu:2,cpu:3"]),
                                 ("workers", 4, [])):
        assert trained(name, workers, 16, *flags) == pytest.approx(alone, abs=1e-5), name


def test_a_worker_with_other_data_seed_or_devices_is_named_by_all(home, data):
    other = idx_data.write(home.folder / "other", seed=2)
    for flag, what in ((f"--data={other}", "the data"), ("--seed=7", "--seed is 7 and 0"),
                       ("--devices=cpu:0,cpu:1", "--devices"),
                       ("--learning-rate=0.1", "the learning rate")):
        [port] = held_ports(1)
        ranks = [home.start([home.trainer_path, f"--data={data}", *([flag] if rank == 1 else [])],
                            env=gang_env(rank, 3, port)) for rank in range(3)]
        for rank in ranks:
            err = rank.communicate(timeout=30 * home.build.slowness)[1].decode()
            assert rank.returncode == EXIT_USAGE and err.count("\n") == 1, err
            assert what in err and "rank 1 (" in err and "rank 0 (" in err, err


@pytest.mark.parametrize("workers", [1, 3])
def test_a_run_continued_is_bit_identical_to_one_that_never_stopped(home, data, workers):
    def run(folder, *flags):
        home.dtrain("submit", f"--name={folder}-{len(list(home.folder.iterdir()))}",
                    f"--workers={workers}", "--wait", "--", f"--data={data}",
                    f"--checkpoint-dir={home.folder / folder}", *flags)
        return tensors(checkpoints(home.folder / folder)[-1])

    whole = run("whole", "--epochs=4")
    run("parts", "--epochs=4", "--steps=13")
    (home.folder / "marker").touch()
    assert run("parts", "--epochs=4", "--resume") == whole


def test_ranks_asked_to_make_room_save_a_checkpoint_and_end_with_the_code_for_that(home, data):
    folder = home.folder / "run"
    [port] = held_ports(1)
    ranks = [home.start([home.trainer_path, f"--data={data}", NO_END, "--log-every=10",
                         f"--checkpoint-dir={folder}"], env=gang_env(rank, 2, port))
             for rank in range(2)]
    assert any(b"epoch" in line for line in ranks[0].stdout)  # It trains.
    for rank in ranks:
        rank.send_signal(signal.SIGUSR1)
    errors = [rank.communicate(timeout=30 * home.build.slowness)[1].decode() for rank in ranks]
    assert [rank.returncode for rank in ranks] == [75, 75], errors
    step = re.search(r"step (\d+) is saved in", errors[0]).group(1)
    assert [path.name for path in checkpoints(folder)] == [f"step-{int(step):09d}.safetensors"]


def test_a_run_with_no_checkpoint_to_save_does_not_make_room(home, data):
    rank = home.start([home.trainer_path, f"--data={data}", "--epochs=40", "--log-every=10"])
    assert any(b"epoch" in line for line in rank.stdout)
    rank.send_signal(signal.SIGUSR1)
    assert b"held-out accuracy" in rank.communicate(timeout=60 * home.build.slowness)[0]
    assert rank.returncode == EXIT_OK


@pytest.mark.parametrize("before, after", [(16, 64), (64, 16), (64, 48)])
def test_a_run_continued_with_another_global_batch_ends_with_its_epochs(home, train, before, after):
    """In samples: 1,920 an epoch, of which the first part has taken 640."""
    flags = ["--epochs=2", "--log-every=1000", f"--checkpoint-dir={home.folder}/run"]
    first = 640 // before
    train(*flags, f"--batch-size={before}", f"--steps={first}")
    result = train(*flags, f"--batch-size={after}", "--resume")
    last = first + -(-(2 * 1920 - 640) // after)
    assert re.search(fr"resumed from .* at step {first}; the last is {last}\b", result.out)
    assert re.search(fr"step +{last}  epoch 2.0[01]/2 ", result.out), result.out
    with_less = train(*flags, f"--batch-size={after}", "--resume", "--epochs=1")
    assert "held-out accuracy" in with_less.out and "  epoch " not in with_less.out


def test_the_hidden_layer_is_as_wide_as_asked_and_a_checkpoint_of_another_width_refused(home, train):
    folder = home.folder / "wide"
    train("--steps=4", "--hidden=32", f"--checkpoint-dir={folder}")
    assert len(tensors(checkpoints(folder)[-1])["hidden.bias"]) == 4 * 32
    result = train("--steps=8", f"--checkpoint-dir={folder}", "--resume", expect=1)
    assert "output.weight has shape [10, 32] where the model's is [10, 128]" in result.err
    assert "--hidden=100,: must be widths of 1 to" in train("--hidden=100,", expect=EXIT_USAGE).err


def test_layers_of_any_number_and_width_learn_and_resume(home, train):
    folder = home.folder / "deep"
    flags = ["--hidden=100,40", f"--checkpoint-dir={folder}", "--epochs=6"]
    train(*flags, "--steps=50")
    assert held_out_accuracy(train(*flags, "--resume")) > 90
    weights = tensors(checkpoints(folder)[-1])
    assert len(weights["hidden1.weight"]) == 4 * 100 * 28 * 28
    assert len(weights["hidden2.weight"]) == 4 * 40 * 100


def test_the_convolutional_network_learns_alike_on_one_rank_and_on_two_and_resumes(home, data, train):
    flags = ["--model=cnn", "--epochs=2", "--log-every=2"]
    alone, two, folder = home.folder / "alone.csv", home.folder / "two.csv", home.folder / "run"
    # Adam's first steps go by gradients' signs, and so enlarge what the sums' order leaves.
    sgd = ["--optimizer=sgd", "--learning-rate=0.02", "--steps=8"]
    train(*flags, *sgd, "--batch-size=64", f"--csv={alone}")
    home.dtrain("submit", "--name=two", "--workers=2", "--wait", "--", f"--data={data}", *flags,
                *sgd, "--batch-size=32", f"--csv={two}")
    assert losses(two) == pytest.approx(losses(alone), abs=2e-5)
    train(*flags, "--batch-size=64", "--steps=8", f"--checkpoint-dir={folder}")
    weights = tensors(checkpoints(folder)[-1])
    assert len(weights["conv1.weight"]) == 4 * 32 * 9 and len(weights["conv2.weight"]) == 4 * 64 * 9 * 32
    assert held_out_accuracy(train(*flags, f"--checkpoint-dir={folder}", "--resume")) > 90


@pytest.mark.parametrize("optimizer", ["sgd", "adamw", "lamb", "muon"])
def test_every_optimizer_learns_with_clipped_and_accumulated_gradients(train, optimizer):
    rate = {"sgd": 0.05, "adamw": 0.003, "lamb": 0.02, "muon": 0.003}[optimizer]
    out = train(f"--optimizer={optimizer}", f"--learning-rate={rate}", "--weight-decay=0.01",
                "--clip-norm=5", "--batch-size=16", "--accumulation-steps=4", "--epochs=10")
    assert held_out_accuracy(out) > 90
    title = {"sgd": "SGD", "adamw": "AdamW", "lamb": "LAMB", "muon": "Muon"}[optimizer]
    assert f"steps of 1 × 64 samples, {title} {rate:g}" in out.out


def test_accumulated_gradients_are_those_of_one_batch(home, train):
    def trained(*flags):
        path = home.folder / f"{len(flags)}.csv"
        train("--steps=60", "--log-every=20", f"--csv={path}", *flags)
        return losses(path)

    assert trained("--batch-size=64") == pytest.approx(
        trained("--batch-size=16", "--accumulation-steps=4"), abs=1e-4)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_loss_that_is_no_number_ends_the_run_naming_step_rank_and_tensor(home, data, workers):
    folder = home.folder / "run"
    result = home.dtrain("submit", "--name=nan", f"--workers={workers}", "--wait", "--",
                         f"--data={data}", "--learning-rate=1e18", "--lr-schedule=constant",
                         f"--checkpoint-dir={folder}", "--checkpoint-every=1", "--log-every=1000",
                         expect=100)
    text = all_text(result)
    found = re.search(r"became NaN or infinite at step (\d+) on rank \d.*; look at (\S+), which holds",
                      text)
    assert found and int(found.group(1)) < 20, text
    assert found.group(2) in ("hidden.weight", "output.weight", "hidden.bias", "output.bias")
    for path in folder.glob("*.safetensors"):
        assert all(value == value for raw in tensors(path).values()
                   for value, in struct.iter_unpack("<f", raw))


def test_the_learning_rate_follows_its_schedule(home, train):
    """By what it does: each gives other weights, and the choice is printed."""
    ends = {}
    for schedule in ("constant", "linear", "cosine"):
        folder = home.folder / schedule
        result = train("--epochs=2", f"--lr-schedule={schedule}", f"--checkpoint-dir={folder}")
        assert f"Adam 0.003, {schedule}" in result.out
        ends[schedule] = tensors(checkpoints(folder)[-1])
    assert ends["constant"] != ends["linear"] != ends["cosine"] != ends["constant"]
    folder = home.folder / "default"
    train("--epochs=2", f"--checkpoint-dir={folder}")
    assert tensors(checkpoints(folder)[-1]) == ends["cosine"]


def test_a_job_that_lost_a_rank_goes_on_from_its_checkpoint(home, data):
    """Supervisor, restart and --resume together: the end is that of a run without the loss. The
    first run has no end but the loss; that of the second is set then."""
    def flags(name):
        return [f"--data={data}", NO_END, "--resume", "--checkpoint-every=20", "--keep=3",
                f"--checkpoint-dir={home.folder / name}"]
    home.submit("struck", *ending_when_told(home), *flags("struck"),
                flags=["--workers=2", "--max-restarts=1"])
    ranks = home.pids("struck")
    until(lambda: last_saved(home.folder / "struck"), "a checkpoint")
    os.kill(ranks[1], signal.SIGKILL)
    until(lambda: not any(map(alive, ranks)), "the first run is over")
    steps = tell_end(home, last_saved(home.folder / "struck") + 50)
    job = home.wait_for_end("struck")
    assert (job["status"], job["restarts"]) == ("SUCCEEDED", 1)
    assert "resumed from" in home.dtrain("logs", "struck").out
    home.dtrain("submit", "--name=calm", "--workers=2", "--wait", "--", home.trainer_path,
                *flags("calm"), f"--steps={steps}")
    calm, struck = (tensors(checkpoints(home.folder / name)[-1]) for name in ("calm", "struck"))
    assert calm == struck


@pytest.mark.parametrize("transport", ["tcp", "shm"])
@pytest.mark.parametrize("loss", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "silent"])
def test_a_dead_peer_ends_every_rank(home, gang, transport, loss):
    ranks = gang(3, NO_END, f"--transport={transport}")
    at_work(ranks)
    ranks[1].send_signal(loss)
    for rank in (ranks[0], ranks[2]):
        assert rank.wait(timeout=60 * home.build.slowness) not in (EXIT_OK, -signal.SIGSEGV)
    for rank in (ranks[0], ranks[2]):
        last = rank.output.read_text(errors="replace").splitlines()[-1]
        assert "rank 1" in last and "step" in last and socket.gethostname() in last, last


def test_a_peer_that_never_comes_is_named(home, data):
    env = gang_env(0, 2, held_ports(1)[0])
    result = home.trainer(f"--data={data}", "--rendezvous-timeout=1", env=env, expect=None)
    assert result.code not in (0, None) and result.code > 0
    assert result.err.count("\n") == 1 and "rank 1" in result.err


def test_a_master_whose_name_appears_late_is_found(home, data):
    """As a Kubernetes Service's: here its line comes late in a hosts file of the ranks' own."""
    hosts = home.folder / "hosts"
    hosts.write_text("127.0.0.1 localhost\n")
    with_hosts = ["unshare", "--mount", "sh", "-c",
                  'mount --bind "$0" /etc/hosts && exec "$@"', hosts]
    if subprocess.run([*with_hosts, "true"], capture_output=True).returncode != 0:
        pytest.skip("needs the right to mount")
    [port] = held_ports(1)
    ranks = [home.start([*with_hosts, home.trainer_path, f"--data={data}", "--epochs=1"],
                        env=gang_env(rank, 2, port) | {"MASTER_ADDR": "late.example"})
             for rank in (0, 1)]
    time.sleep(1)
    assert all(rank.poll() is None for rank in ranks)
    with hosts.open("a") as file:  # the same file: it is what is mounted
        file.write("127.0.0.1 late.example\n")
    for rank in ranks:
        assert rank.wait(timeout=30 * home.build.slowness) == EXIT_OK, rank.output.read_text()


def test_it_runs_from_tf_config_alone(home, data):
    ports = held_ports(2)
    cluster = {"worker": [f"127.0.0.1:{port}" for port in ports]}
    ranks = [home.start([home.trainer_path, f"--data={data}", "--epochs=1"],
                        env={"TF_CONFIG": json.dumps({"cluster": cluster, "task": {
                            "type": "worker", "index": index}})}) for index in range(2)]
    for rank in ranks:
        out, err = rank.communicate(timeout=60 * home.build.slowness)
        assert rank.returncode == 0, (out, err)


@pytest.mark.parametrize("change", [
    lambda raw: raw[:-1], lambda raw: raw[:5], lambda raw: b"\xff" * 8 + raw[8:],
    lambda raw: b""], ids=["truncated", "no header", "a header of 2⁶⁴ bytes", "empty"])
def test_a_damaged_checkpoint_is_refused_by_name(home, train, change):
    folder = home.folder / "ckpt"
    train("--steps=5", f"--checkpoint-dir={folder}")
    for path in checkpoints(folder):
        path.write_bytes(change(path.read_bytes()))
    result = train("--steps=6", f"--checkpoint-dir={folder}", "--resume", expect=None)
    assert result.code in (1, 2) and result.err.count("\n") == 1, result
    assert "safetensors" in result.err


def test_a_run_goes_on_from_the_checkpoint_before_a_damaged_one_and_logs_no_step_twice(home, train):
    folder, log = home.folder / "ckpt", home.folder / "log.csv"
    flags = [f"--checkpoint-dir={folder}", "--checkpoint-every=10", f"--csv={log}", "--log-every=5"]
    train("--steps=20", *flags)
    newest = checkpoints(folder)[-1]
    raw = bytearray(newest.read_bytes())
    raw[len(raw) // 2] ^= 1
    newest.write_bytes(raw)
    out = train("--steps=30", "--resume", *flags).out
    assert f"{newest}: damaged" in out and re.search(r"resumed from \S*10.safetensors at step 10", out)
    steps = [int(line.split(",")[0]) for line in log.read_text().splitlines()[1:]]
    assert steps == [5, 10, 15, 20, 25, 30]


def test_inspect_tells_whole_checkpoints_from_damaged_ones_and_what_they_hold(home, train):
    folder = home.folder / "ckpt"
    assert "no such folder" in home.trainer("inspect", folder, expect=1).err
    folder.mkdir()
    assert "no checkpoint in it" in home.trainer("inspect", folder, expect=1).err
    train("--steps=20", "--checkpoint-every=10", f"--checkpoint-dir={folder}", "--hidden=32")
    older, newer = checkpoints(folder)
    out = home.trainer("inspect", folder).out
    assert out.index(f"{newer}: whole, ") < out.index(f"{older}: whole, ")
    assert re.search(r"step +20\n +samples +1,280, of 1,920 an epoch and 64 a step\n +seed +0\n", out)
    assert re.search(r"moments +adam.m, adam.v\n", out)
    weights = struct.unpack(f"<{32 * 784}f", tensors(newer)["hidden.weight"])
    line = re.search(r"hidden.weight +32×784 +25,088 +(\S+) +(\S+) +(\S+)\n", out)
    assert float(line.group(1)) == pytest.approx(sum(weights) / len(weights), rel=1e-3)
    assert float(line.group(3)) == pytest.approx(max(map(abs, weights)), rel=1e-3)
    newer.write_bytes(newer.read_bytes()[:-1])
    out = home.trainer("inspect", folder).out
    assert f"{newer}: damaged" in out and f"{older}: whole" in out
    older.with_suffix(".json").unlink()
    last = home.trainer("inspect", folder, expect=1)
    assert f"{older}: was not finished" in last.out and "none of its checkpoints is whole" in last.err
    assert "DIR" in home.trainer("inspect", expect=EXIT_USAGE).err


def test_a_full_disk_leaves_the_last_good_checkpoint(home, data, train):
    """A file size limit stands for the disk: writing the next checkpoint fails half-way."""
    folder = home.folder / "ckpt"
    train("--steps=5", f"--checkpoint-dir={folder}")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    result = home.run(["sh", "-c", 'ulimit -f 64; trap "" XFSZ; exec "$@"', "sh",
                       home.trainer_path, "--steps=10", f"--checkpoint-dir={folder}", "--resume",
                       f"--data={data}"], expect=None)
    assert result.code == 1 and result.err.count("\n") == 1, result
    assert str(folder) in result.err
    after = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert after == before
    train("--steps=10", f"--checkpoint-dir={folder}", "--resume")


CRC_TABLE = []
for index in range(256):
    value = index
    for _ in range(8):
        value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
    CRC_TABLE.append(value)


def masked_crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ CRC_TABLE[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def records(path):
    """The records of a TensorBoard file, every checksum checked."""
    raw, offset = path.read_bytes(), 0
    while offset < len(raw):
        length, checksum = struct.unpack_from("<QI", raw, offset)
        assert checksum == masked_crc32c(raw[offset:offset + 8])
        data = raw[offset + 12:offset + 12 + length]
        assert struct.unpack_from("<I", raw, offset + 12 + length)[0] == masked_crc32c(data)
        yield data
        offset += 16 + length


def test_tensorboard_files_are_whole_and_written_by_one_rank(home, data):
    folder = home.folder / "logs"
    home.dtrain("submit", "--name=tb", "--workers=2", "--wait", "--", f"--data={data}",
                "--epochs=2", "--log-every=10", f"--logdir={folder}")
    files = list(folder.rglob("events.out.tfevents.*"))
    assert len(files) == 1
    found = list(records(files[0]))
    assert b"brain.Event:2" in found[0]
    assert any(b"loss" in record for record in found)
    assert any(b"accuracy" in record for record in found)


def test_a_terminal_gets_a_progress_bar_and_a_pipe_none(home, data, train):
    assert "\r" not in all_text(train("--epochs=1"))
    child = pexpect.spawn(home.trainer_path, [f"--data={data}", "--epochs=30"], env=home.env,
                          dimensions=(24, 80), encoding="utf-8",
                          timeout=60 * home.build.slowness)
    child.expect("\r")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0


def test_term_ends_training_at_once_and_leaves_nothing(home, gang):
    ranks = gang(2, NO_END)
    at_work(ranks)
    for rank in ranks:
        rank.terminate()
    for rank in ranks:
        assert rank.wait(timeout=60 * home.build.slowness) != 0


def test_no_two_ranks_see_the_same_sample(home, data):
    """One epoch over 1920 samples by three ranks of batch 64 is ten steps, not thirty."""
    result = home.dtrain("submit", "--name=shards", "--workers=3", "--wait", "--",
                         f"--data={data}", "--epochs=1", "--log-every=1")
    steps = {int(step) for step in re.findall(r"step\s+(\d+)", all_text(result))}
    assert max(steps) == 10


def test_fashion_mnist_of_debian_is_the_default(home):
    if not os.path.isdir("/usr/share/datasets/fashion-mnist"):
        pytest.skip("dataset-fashion-mnist is not installed")
    assert "fashion" in all_text(home.trainer("--steps=20")).lower()
