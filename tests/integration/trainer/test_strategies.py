"""Parameter servers and mirrored replicas, as real processes on a small data set."""
import fcntl
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import sys
import time

import pytest

from harness import EXIT_ERROR, EXIT_OK, EXIT_USAGE, held_ports, until
from trainer_process import losses


class Job:
    """Parameter servers, if any, and workers, each a process that writes to a file of its own; the
    chief's stdout may be another one."""

    def __init__(self, home, data, servers, workers, flags, chief=False, chief_out=None):
        self.home = home
        self.chief_out = chief_out
        self.command = [home.trainer_path, f"--data={data}", "--no-progress", *flags]
        ports = held_ports(servers + workers + chief)
        addresses = [f"127.0.0.1:{port}" for port in ports]
        self.cluster = {"ps": addresses[:servers], "worker": addresses[servers:servers + workers]}
        if servers == 0:
            del self.cluster["ps"]
        if chief:
            self.cluster["chief"] = addresses[servers + workers:]
        self.tasks = {}
        for kind, addresses in self.cluster.items():
            for index in range(len(addresses)):
                self.start(kind, index)

    def start(self, kind, index):
        env = {"DTRAIN_JOB_TOKEN": "secret", "TF_CONFIG": json.dumps(
            {"cluster": self.cluster, "task": {"type": kind, "index": index}})}
        path = self.home.folder / f"{kind}-{index}.log"
        with path.open("ab") as file:
            out = self.chief_out if kind == "chief" and self.chief_out is not None else file
            process = self.home.start(self.command, env=env, stdout=out, stderr=file)
        process.output = path
        self.tasks[kind, index] = process

    def text(self, kind, index):
        return self.tasks[kind, index].output.read_text(errors="replace")

    def wait(self, seconds=60, expect=EXIT_OK):
        for (kind, index), process in self.tasks.items():
            code = process.wait(timeout=seconds * self.home.build.slowness)
            assert expect is None or code == expect, f"{kind} {index}: {self.text(kind, index)}"

    def end(self):
        for process in self.tasks.values():
            if process.poll() is None:
                process.kill()
            process.wait()


@pytest.fixture
def job(home, data):
    jobs = []

    def start(servers, workers, *flags, **options):
        jobs.append(Job(home, data, servers, workers, flags, **options))
        return jobs[-1]
    yield start
    for one in jobs:
        one.end()


def held_out(text):
    return re.search(r"held-out .*", text).group(0)


STEPS = ["--steps=60", "--log-every=20"]


def test_servers_replicas_and_one_process_have_the_same_losses(home, data, job):
    path = {name: home.folder / f"{name}.csv" for name in ["alone", "mirrored", "served", "led",
                                                     "accumulated"]}
    home.trainer(f"--data={data}", "--batch-size=64", *STEPS, f"--csv={path['alone']}")
    home.trainer(f"--data={data}", "--batch-size=32", "--devices=cpu:0,cpu:1", *STEPS,
                 f"--csv={path['mirrored']}")
    job(2, 2, "--batch-size=32", *STEPS, f"--csv={path['served']}").wait()
    job(2, 2, "--batch-size=32", *STEPS, f"--csv={path['led']}", chief=True).wait()
    job(2, 2, "--batch-size=8", "--accumulation-steps=4", *STEPS,
        f"--csv={path['accumulated']}").wait()
    alone = losses(path["alone"])
    assert list(alone) == [20, 40, 60]
    for name in ["mirrored", "served", "led", "accumulated"]:
        assert losses(path[name]) == pytest.approx(alone, abs=1e-5), name


def test_a_worker_of_servers_clips_its_gradients_as_one_process_does(home, data, job):
    path = {name: home.folder / f"{name}.csv" for name in ["unclipped", "alone", "served", "led"]}
    flags = ["--batch-size=64", "--steps=60", "--log-every=5"]
    clip = "--clip-norm=0.2"
    home.trainer(f"--data={data}", *flags, f"--csv={path['unclipped']}")
    home.trainer(f"--data={data}", *flags, clip, f"--csv={path['alone']}")
    job(2, 1, *flags, clip, "--transport=tcp", f"--csv={path['served']}").wait()
    job(2, 1, *flags, clip, f"--csv={path['led']}", chief=True).wait()
    alone = losses(path["alone"])
    assert alone != pytest.approx(losses(path["unclipped"]), abs=1e-3)
    for name in ["served", "led"]:
        assert losses(path[name]) == pytest.approx(alone, abs=1e-5), name


def test_the_servers_say_how_much_went_through_them(job):
    served = job(2, 1, "--transport=tcp", *STEPS)
    served.wait()
    for index in range(2):
        assert re.search(rf"ps {index}: step 60, .* MB/s in, .* MB/s out", served.text("ps", index))


def test_gradients_of_half_the_bytes_train_as_well_with_servers(home, job):
    """The same losses by shared memory as over TCP, near fp32's, for half of what comes in; 16 bits
    round each worker's gradient once, to a relative 2^-9 (bf16) or 2^-12, and the servers add in
    fp32, so that after 60 steps the losses have moved by a small part of themselves."""
    figures, came_in = {}, {}
    for kind in ["fp32", "bf16", "fp16"]:
        for transport in ["tcp", "auto"]:
            path = home.folder / f"{kind}-{transport}.csv"
            served = job(2, 2, "--batch-size=32", *STEPS, f"--transport={transport}",
                         f"--communication-data-type={kind}", f"--csv={path}")
            served.wait()
            figures[kind, transport] = losses(path)
            assert (f"gradients as {kind}" in served.text("worker", 0)) == (kind != "fp32")
            came_in[kind, transport] = sum(
                float(re.findall(r"ends at step 60: ([\d.]+) MB in", served.text("ps", i))[-1])
                for i in range(2))  # the files of all jobs are the same
        assert figures[kind, "tcp"] == figures[kind, "auto"]
    for kind in ["bf16", "fp16"]:
        assert figures[kind, "tcp"] != figures["fp32", "tcp"]
        assert figures[kind, "tcp"] == pytest.approx(figures["fp32", "tcp"], rel=0.02)
        # Beside 120 times the model's gradients, the first values come whole, once or twice.
        assert 0.49 < came_in[kind, "tcp"] / came_in["fp32", "tcp"] < 0.52


@pytest.mark.parametrize("transport", ["auto", "tcp"])
def test_a_server_that_is_killed_comes_back_to_its_snapshot_and_changes_nothing(home, job,
                                                                                transport):
    flags = ["--steps=3000", "--log-every=3000", "--snapshot-every=100",
             f"--transport={transport}"]
    calm = job(2, 2, *flags)
    calm.wait()
    expected = held_out(calm.text("worker", 0))
    struck = job(2, 2, *flags, f"--snapshot-dir={home.folder / 'snapshots'}")
    folder = home.folder / "snapshots" / "ps-1-of-2"
    until(lambda: list(folder.glob("step-*.json")), "a snapshot")
    struck.tasks["ps", 1].kill()
    struck.tasks["ps", 1].wait()
    struck.start("ps", 1)
    struck.wait()
    assert "resumes at step" in struck.text("ps", 1)
    assert held_out(struck.text("worker", 0).rpartition("lost ps 1")[2]) == expected


def test_a_server_that_does_not_come_back_is_named_by_every_worker(home, job):
    struck = job(2, 2, "--epochs=1000000", "--log-every=50", "--rendezvous-timeout=5")
    until(lambda: "\nstep " in struck.text("worker", 0), "a step")
    struck.tasks["ps", 1].kill()
    for index in range(2):
        assert struck.tasks["worker", index].wait(timeout=60 * home.build.slowness) == 1
        last = struck.text("worker", index).splitlines()[-1]
        assert "ps 1 (127.0.0.1:" in last and "step" in last


@pytest.mark.parametrize("loss", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "silent"])
def test_a_worker_that_is_lost_is_named_and_the_others_go_on(home, job, loss):
    struck = job(1, 3, "--epochs=1000000", "--log-every=50",
                 f"--peer-timeout={4 * home.build.slowness}")
    until(lambda: "\nstep " in struck.text("worker", 0), "a step")
    struck.tasks["worker", 1].send_signal(loss)
    until(lambda: "lost worker 1 (" in struck.text("ps", 0), "the ps names it")
    lines = struck.text("worker", 0).count("\n")
    until(lambda: struck.text("worker", 0).count("\n") > lines + 1, "the others go on")
    assert "2 of 3 workers left" in struck.text("ps", 0)


@pytest.mark.parametrize("chief", [False, True])
def test_a_job_with_servers_ends_where_its_loss_is_no_number(home, job, chief):
    diverged = job(1, 1, "--learning-rate=1e18", *STEPS, chief=chief)
    code = diverged.tasks["worker", 0].wait(timeout=60 * home.build.slowness)
    assert code == EXIT_ERROR, diverged.text("worker", 0)
    assert re.search(r"the loss became NaN or infinite at step \d+ on worker 0; look at .*"
                     "--learning-rate", diverged.text("worker", 0))


def test_asynchronous_workers_finish(job):
    served = job(1, 2, "--update=async", "--max-staleness=4", *STEPS)
    served.wait()
    assert "held-out accuracy" in served.text("worker", 0)


def test_a_chief_writes_the_log_and_the_first_worker_the_score(home, job):
    path = home.folder / "log.csv"
    led = job(2, 2, "--batch-size=32", f"--csv={path}", *STEPS, chief=True)
    led.wait()
    assert list(losses(path)) == [20, 40, 60]
    assert "held-out accuracy" in led.text("worker", 0)
    assert "step" not in led.text("worker", 0)


@pytest.mark.parametrize("update", ["sync", "async"])
def test_what_a_lost_worker_was_to_do_is_done_by_the_others_of_a_chief(home, job, update):
    """The chief prints into a pipe that is soon full, and then hands out no batch until we read on:
    the run cannot be over before the worker is lost."""
    out, into = os.pipe()
    fcntl.fcntl(into, fcntl.F_SETPIPE_SZ, 4096)
    struck = job(1, 3, "--epochs=60", "--log-every=1", "--peer-timeout=60", f"--update={update}",
                 chief=True, chief_out=into)
    os.close(into)
    with open(out, "rb", buffering=0) as lines:
        assert any(line.startswith(b"step ") for line in lines), struck.text("chief", 0)
        struck.tasks["worker", 1].kill()
        with struck.tasks["chief", 0].output.open("ab") as log:
            reader = home.start(["cat"], stdin=lines, stdout=log)
    for kind, index in [("chief", 0), ("worker", 0), ("worker", 2), ("ps", 0)]:
        code = struck.tasks[kind, index].wait(timeout=90 * home.build.slowness)
        assert code == EXIT_OK, struck.text(kind, index)
    assert reader.wait(timeout=60 * home.build.slowness) == 0
    assert re.search(r"lost worker 1 \(.*what it had to do goes to the others",
                     struck.text("chief", 0))
    assert re.search(r"epoch 60.00/60", struck.text("chief", 0))


def alone_with(home, data, cluster, task, *flags):
    env = {"TF_CONFIG": json.dumps({"cluster": cluster, "task": task})}
    result = home.trainer(f"--data={data}", *flags, env=env, expect=EXIT_USAGE)
    assert result.err.count("\n") == 1, result
    return result.err


def test_mistakes_in_a_job_with_servers_are_one_line(home, data):
    port, = held_ports(1)
    here = f"127.0.0.1:{port}"
    both = {"ps": [here], "worker": ["127.0.0.1:1"]}
    assert "cluster.worker" in alone_with(home, data, {"ps": [here]}, {"type": "ps", "index": 0})
    assert "cluster.evaluator" in alone_with(home, data, {**both, "evaluator": ["127.0.0.1:2"]},
                                             {"type": "evaluator", "index": 0})
    worker = {"type": "worker", "index": 0}
    assert "--print-plan" in alone_with(home, data, both, worker, "--print-plan")
    assert "--backup-workers=1" in alone_with(home, data, both, worker, "--backup-workers=1")
    for task in [worker, {"type": "ps", "index": 0}]:  # none waits for the other
        assert "--max-staleness" in alone_with(home, data, both, task, "--max-staleness=1")
        assert "--min-workers" in alone_with(home, data, both, task, "--min-workers=1")
    for flag, named in [("--checkpoint-dir=x", "--snapshot-dir"), ("--timeline=x", "--timeline"),
                        ("--devices=cpu:0", "--devices"), ("--batch-split=speed", "chief")]:
        assert named in alone_with(home, data, both, worker, flag)
    with socket.create_server(("127.0.0.1", port)):
        error = alone_with(home, data, both, {"type": "ps", "index": 0})
        assert here in error and "in use" in error


@pytest.mark.parametrize("flag", ["--update=async", "--backup-workers=1", "--max-staleness=1",
                                  "--snapshot-dir=x", "--snapshot-every=7", "--max-workers=2"])
def test_a_flag_that_would_do_nothing_is_refused(home, data, flag):
    result = home.trainer(f"--data={data}", flag, expect=EXIT_USAGE)
    assert flag.split("=")[0] in result.err and result.err.count("\n") == 1


def test_a_strategy_is_taken_where_it_fits_the_job_and_else_refused_naming_both(home, data):
    for strategy, devices in (("auto", "cpu:0"), ("mirrored", "cpu:0,cpu:1")):
        home.trainer(f"--data={data}", "--steps=2", f"--strategy={strategy}", f"--devices={devices}")
    alone = home.trainer(f"--data={data}", "--strategy=multi-worker", expect=EXIT_USAGE)
    assert alone.err.count("\n") == 1 and "no cluster variables; use auto or mirrored" in alone.err
    both = {"ps": ["127.0.0.1:1"], "worker": ["127.0.0.1:2"]}
    assert "1 worker and 1 parameter server; use auto or parameter-server" in alone_with(
        home, data, both, {"type": "worker", "index": 0}, "--strategy=multi-worker")
    name = "dtrain"
    for strategy, code in (("multi-worker", EXIT_OK), ("parameter-server", 100)):
        result = home.dtrain("submit", f"--name={name}-{strategy}", "--workers=2", "--wait", "--",
                             f"--data={data}", "--steps=2", f"--strategy={strategy}", expect=code)
    assert "TF_CONFIG names 2 workers; use auto or multi-worker" in result.out + result.err


def test_elastic_workers_have_equal_shares(home, data):
    env = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    result = home.trainer(f"--data={data}", "--min-workers=1", "--batch-split=speed", env=env,
                          expect=EXIT_USAGE)
    assert "--batch-split=speed" in result.err and result.err.count("\n") == 1


@pytest.mark.parametrize("precision, chosen, told", [("fp32", ["portable", "avx2"], "fma and portable"),
                                                     ("bf16", ["", "avx512"], "fma and amx")])
def test_ranks_with_unlike_kernels_are_told_so(home, data, precision, chosen, told):
    if "amx" in told and not {"amx_bf16", "avx512_bf16"} <= set(pathlib.Path("/proc/cpuinfo").read_text().split()):
        pytest.skip("this machine has no AMX")
    port, = held_ports(1)
    ranks = [home.start([home.trainer_path, f"--data={data}", f"--precision={precision}", *STEPS],
                        env={"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
                             "MASTER_PORT": str(port), "DTRAIN_JOB_TOKEN": "secret",
                             **({"DTRAIN_CPU_KERNELS": kernels} if kernels else {})})
             for rank, kernels in enumerate(chosen)]
    for rank in ranks:
        err = rank.communicate(timeout=60 * home.build.slowness)[1].decode()
        if "this machine has none" in err:
            pytest.skip("this machine has one set of kernels")
        assert rank.returncode == EXIT_USAGE
        assert "DTRAIN_CPU_KERNELS" in err and told in err


def test_ranks_started_by_hand_share_a_token_file(home, data):
    token = home.folder / "token"
    token.write_text("0123456789abcdef0123\n")
    token.chmod(0o600)
    port, = held_ports(1)
    ranks = [home.start([home.trainer_path, f"--data={data}", f"--token-file={token}", *STEPS],
                        env={"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
                             "MASTER_PORT": str(port), "DTRAIN_JOB_TOKEN": str(rank)})
             for rank in range(2)]
    for rank in ranks:
        assert rank.wait(timeout=60 * home.build.slowness) == EXIT_OK


@pytest.mark.parametrize("length, end", [(["--steps=60"], 60),
                                         (["--epochs=1", "--drop-remainder", "--batch-size=100"], 19)])
def test_an_evaluator_scores_checkpoints_beside_the_workers(home, data, length, end):
    folder = home.folder / "checkpoints"
    flags = [f"--data={data}", *length, f"--checkpoint-dir={folder}", "--checkpoint-every=20"]
    cluster = {"worker": ["127.0.0.1:1"]}
    evaluator = home.start(
        [home.trainer_path, *flags, f"--logdir={home.folder / 'logs'}"],
        env={"TF_CONFIG": json.dumps({"cluster": cluster,
                                      "task": {"type": "evaluator", "index": 0}})})
    trained = home.trainer(*flags).out
    out, err = evaluator.communicate(timeout=60 * home.build.slowness)
    assert evaluator.returncode == EXIT_OK, err
    last = out.decode().splitlines()[-1]
    assert last.startswith(f"step {end}  ") and held_out(last) == held_out(trained)
    assert list((home.folder / "logs" / "evaluator").glob("events.out.tfevents.*"))
    refused = alone_with(home, data, cluster, {"type": "evaluator", "index": 0})
    assert "--checkpoint-dir" in refused


def test_an_evaluator_reads_a_damaged_checkpoint_once_and_scores_what_is_saved_after(home, data):
    folder = home.folder / "checkpoints"
    flags = [f"--data={data}", f"--checkpoint-dir={folder}", "--checkpoint-every=20"]
    home.trainer(*flags, "--steps=20")
    damaged = folder / "step-000000400.safetensors"
    damaged.write_bytes(bytes(10_000_000))
    shutil.copy(folder / "step-000000020.json", damaged.with_suffix(".json"))
    evaluator = home.start(
        [home.trainer_path, *flags, "--steps=40"],
        env={"TF_CONFIG": json.dumps({"cluster": {"worker": ["127.0.0.1:1"]},
                                      "task": {"type": "evaluator", "index": 0}})})
    lines = iter(evaluator.stdout.readline, b"")
    assert next(line for line in lines if line.startswith(b"step "))

    def bytes_read():
        return int(pathlib.Path(f"/proc/{evaluator.pid}/io").read_text().split()[1])
    before = bytes_read()
    time.sleep(1)  # Five looks, of 10 MB each if it read the file.
    assert bytes_read() < before + 2 * damaged.stat().st_size
    home.trainer(*flags, "--steps=40", "--resume")
    assert next(line for line in lines).startswith(b"step 40  ")
    assert evaluator.wait(timeout=60 * home.build.slowness) == EXIT_OK


@pytest.mark.parametrize("flag, named", [
    ("--devices=gpu:0", "CUDA"), ("--devices=cpu:0,cpu:0", "twice"), ("--devices=cpu", "cpu:0"),
    ("--cross-device-ops=nccl", "NCCL")])
def test_a_device_that_cannot_be_had_is_one_line(home, data, flag, named):
    result = home.trainer(f"--data={data}", flag, expect=EXIT_USAGE)
    assert result.err.count("\n") == 1 and named in result.err, result


def trace(path):
    """Rank -> its spans, by the time they begin; the names of ranks."""
    events = json.loads(path.read_text())["traceEvents"]
    names = {event["pid"]: event["args"]["name"] for event in events
             if event["name"] == "process_name"}
    spans = {rank: sorted((event for event in events
                           if event["ph"] == "X" and event["pid"] == rank),
                          key=lambda event: event["ts"]) for rank in names}
    return spans, names


def check_nested(spans):
    """Viewers drop a span that begins in another one of its track and ends behind it."""
    rounding = 0.01  # microseconds
    for track in {span["tid"] for span in spans}:
        open_ends = []
        for span in (span for span in spans if span["tid"] == track):
            while open_ends and open_ends[-1] <= span["ts"] + rounding:
                open_ends.pop()
            end = span["ts"] + span["dur"]
            assert not open_ends or end <= open_ends[-1] + rounding, span
            open_ends.append(end)


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_a_timeline_shows_every_rank_on_one_clock(home, data, transport):
    path = home.folder / "trace.json"
    home.dtrain("submit", "--name=traced", "--workers=3", "--wait", "--", f"--data={data}",
                "--steps=40", f"--timeline={path}", f"--transport={transport}")
    spans, names = trace(path)
    assert sorted(names) == [0, 1, 2] and all(f"rank {rank} (" in names[rank] for rank in names)
    ends = []
    for rank in spans:
        kinds = [span["name"] for span in spans[rank]]
        assert kinds.count("forward and backward") == kinds.count("input") == 40
        assert kinds.count("all-reduce") == kinds.count("wait") >= 40
        ends.append([span["ts"] + span["dur"] for span in spans[rank]
                     if span["name"] == "wait"])
    # No rank is through with a sum before the last one has begun its part of it: on one clock, the
    # last wait of each ends after every rank's last forward.
    begun = max(max(span["ts"] for span in spans[rank] if span["name"] == "forward and backward")
                for rank in spans)
    assert min(end[-1] for end in ends) > begun
    for rank in spans:
        check_nested(spans[rank])


def test_figures_of_the_log_are_appended_to_a_csv_file(home, data):
    path = home.folder / "log.csv"
    for _ in range(2):
        home.trainer(f"--data={data}", "--steps=20", "--log-every=10", f"--csv={path}")
    lines = [line.split(",") for line in path.read_text().splitlines()]
    assert lines[0][:3] == ["step", "epoch", "loss"]
    assert [line[0] for line in lines[1:]] == ["10", "20", "10", "20"]
    assert {len(line) for line in lines} == {len(lines[0])}
    refused = home.trainer(f"--data={data}", f"--csv={home.folder}/no/log.csv", expect=1)
    assert "--csv=" in refused.err and "No such file" in refused.err


def test_a_slow_worker_is_named_and_gets_a_smaller_share_on_request(home, data):
    """One worker runs for a quarter of the time: it is stopped for the rest. How fast the other is
    lies with the machine, so that each run goes on until it has been seen."""
    slow = ("import os, signal, subprocess, sys, time\n"
            "child = subprocess.Popen(sys.argv[1:])\n"
            "while os.environ['RANK'] == '1' and child.poll() is None:\n"
            "    child.send_signal(signal.SIGSTOP); time.sleep(0.015)\n"
            "    child.send_signal(signal.SIGCONT); time.sleep(0.005)\n"
            "sys.exit(child.wait())\n")

    def run(name, *flags):
        home.submit(name, sys.executable, "-c", slow, home.trainer_path, f"--data={data}",
                    "--no-progress", "--epochs=1000000", "--batch-size=512", "--log-every=50",
                    *flags, flags=["--workers=2"])
        return lambda: home.dtrain("logs", name).out

    def shares(text):
        found = re.findall(r"shares of the 1024 samples .*: (\d+), (\d+)", text)
        assert all(int(fast) + int(slow) == 1024 for fast, slow in found)
        return found

    equal = run("equal")
    until(lambda: re.search(r"rank 1 \(.*is slow.*--batch-split=speed", equal()),
          equal)
    assert "shares of" not in equal()
    home.dtrain("delete", "equal")
    speed = run("speed", "--batch-split=speed")
    until(lambda: any(int(fast) > 1.5 * int(slow) for fast, slow in shares(speed())), speed)
    home.dtrain("delete", "speed")


def test_the_plan_of_a_job_says_which_way_each_pack_goes_and_what_that_sends(home):
    def plan(workers, *flags):
        out = home.dtrain("submit", f"--name=plan-{len(plans)}", f"--workers={workers}", "--wait",
                          "--", "--print-plan", *flags).out
        plans.append(out)
        total = int(re.search(r"gradients +([\d,]+) bytes", out).group(1).replace(",", ""))
        packs = [int(text.replace(",", "")) for text in re.findall(r"pack \d+ +([\d,]+) bytes", out)]
        assert sum(packs) == total and "held-out" not in out
        sent = re.search(r"a step +rank 0 sends ([\d,]+) bytes", out)
        return out, total, packs, int(sent.group(1).replace(",", "")) if sent else 0

    plans = []
    out, total, packs, sent = plan(3, "--transport=tcp")
    assert len(packs) == 3 and min(packs[:-1]) >= 131072 and abs(sent - total * 4 / 3) < 3
    assert "to 8 KiB   direct" in out and "larger     ring: reduce-scatter" in out
    _, total, packs, sent = plan(2, "--transport=tcp", "--bytes-per-pack=0",
                                 "--communication-data-type=bf16")
    assert packs == [total] and abs(sent - total / 2) < 3
    out, _, packs, sent = plan(2, "--transport=shm", "--bytes-per-pack=1000")
    assert len(packs) > 3 and sent == 0 and "in place" in out
    out, _, _, sent = plan(2, "--devices=cpu:0,cpu:1", "--transport=tcp")
    assert "replicas in memory, then ring" in out and abs(sent - total) < 3


@pytest.mark.parametrize("loose", ["--batch-split=speed", "--update=async", "--backup-workers=1"])
def test_deterministic_refuses_what_follows_the_clock(home, data, loose):
    refused = home.trainer(f"--data={data}", "--deterministic", loose, expect=EXIT_USAGE)
    assert refused.err.count("\n") == 1 and loose.partition("=")[0] in refused.err
    ends = [held_out(home.trainer(f"--data={data}", "--deterministic", "--steps=20").out)
            for _ in range(2)]
    assert ends[0] == ends[1]


def test_a_plan_names_the_best_number_of_servers(home):
    out = home.trainer("--plan=16", "--plan-bandwidth=1", "--plan-latency=20").out
    assert re.search(r"\d+ servers? for 16 workers", out)
    assert out.count("best a machine") == 1 and "ring" in out
