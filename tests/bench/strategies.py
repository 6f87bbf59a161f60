"""The strategies' speed on the MLP beside TensorFlow's and PyTorch's, and what of it remains where
workers are more or unlike."""
import csv
import os
import re
import statistics
import sys
import tempfile

from measure import Row, own_home, peer_program, run
from mlp import PEERS, WINDOW_SECONDS, compare, trainer_speed

# A worker on a core to itself, but for the slowed one, which a busy neighbour leaves a third of it.
SLOWED = """
import os, subprocess, sys
slowed = os.environ.get("RANK", "0") == sys.argv[1]
os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[1 if slowed else 0]})
if not slowed:
    os.execv(sys.argv[2], sys.argv[2:])
neighbour = subprocess.Popen([sys.executable, "-c", "while True: pass"])
try:
    os.nice(3)
    code = subprocess.run(sys.argv[2:]).returncode
finally:
    neighbour.kill()
    neighbour.wait()
sys.exit(code)
"""


def benchmark(bench, *command):
    """Samples/s of the best window that `command` prints."""
    with own_home() as env:
        output = run([*command, f"--benchmark={WINDOW_SECONDS}"], env=env)
    return float(re.search(r"best (\d+) samples/s", output).group(1))


def training_speed(bench, *flags, workers=1, slow="none"):
    """Samples/s of a run on Fashion-MNIST with --batch-split's shares settled, one worker slowed."""
    with own_home() as env, tempfile.TemporaryDirectory() as folder:
        log = f"{folder}/log.csv"
        run([bench.bin / "dtrain", "submit", f"--workers={workers}", "--wait", "--",
             sys.executable, "-c", SLOWED, slow, bench.bin / "dtrain-trainer", "--hidden=1024",
             "--batch-size=1024", "--steps=240", "--log-every=20", f"--csv={log}", *flags], env=env)
        with open(log, encoding="utf-8") as file:
            speeds = [float(line["samples_per_second"]) for line in csv.DictReader(file)]
    return statistics.median(speeds[-len(speeds) // 3:])


def rows(bench):
    tensorflow = bench.find("TensorFlow (./dev peers tensorflow)",
                            peer_program("tensorflow", "python"))
    torchrun = bench.find("PyTorch (./dev peers torch)", peer_program("torch", "torchrun"))
    trainer = bench.bin / "dtrain-trainer"
    submit = [bench.bin / "dtrain", "submit", "--wait", "--workers=2"]

    def strategy(name, batch=64):
        return tensorflow and [tensorflow, PEERS / "mlp_tensorflow.py", f"--strategy={name}",
                               f"--batch={batch}"]

    def ddp(batch):
        return torchrun and [torchrun, "--nproc-per-node=2", PEERS / "train_torch.py",
                             f"--batch={batch}", "--fused"]

    found = compare(bench, "mirrored, 2 CPU replicas, batch 64 each",
                    lambda: benchmark(bench, trainer, "--devices=cpu:0,cpu:1"),
                    {"TensorFlow MirroredStrategy": (strategy("mirrored"), 8)})
    found += compare(bench, "2 workers, batch 64 each", lambda: trainer_speed(bench, 64, 2), {
        "TensorFlow MultiWorkerMirrored, RING": (strategy("multi-worker"), 15),
        "PyTorch DDP, gloo": (ddp(64), 8)})
    found += compare(bench, "2 workers, batch 512 each", lambda: trainer_speed(bench, 512, 2), {
        "TensorFlow MultiWorkerMirrored, RING": (strategy("multi-worker", 512), 4),
        "PyTorch DDP, gloo": (ddp(512), 2)})
    found += compare(bench, "1 parameter server, 2 workers, batch 64 each",
                     lambda: benchmark(bench, *submit, "--ps=1", "--"),
                     {"TensorFlow ParameterServerStrategy": (strategy("parameter-server"), 10)})

    # 13 MB of gradients: at 256 samples a step moving and adding them still takes a part of it.
    for batch, target in ((256, None), (1024, 95)):
        wide = ["--hidden=4096", f"--batch-size={batch}"]
        speeds = bench.interleaved({
            "one": lambda wide=wide: benchmark(bench, trainer, *wide),
            "two": lambda wide=wide: benchmark(bench, *submit, "--", *wide)})
        found.append(Row(f"weak scaling, 1 to 2 workers, hidden 4,096, batch {batch:,} each", "%",
                         100 * max(speeds["two"]) / (2 * max(speeds["one"])), more_is_better=True,
                         target=target))

    if (os.cpu_count() or 1) > 1:
        speeds = bench.interleaved({
            "fast": lambda: training_speed(bench),
            "slow": lambda: training_speed(bench, slow="0"),
            "equal": lambda: training_speed(bench, workers=2, slow="1"),
            "split": lambda: training_speed(bench, "--batch-split=speed", workers=2, slow="1")})
        both = max(speeds["fast"]) + max(speeds["slow"])
        for split, target in (("equal", None), ("split", 85)):
            name = "equal" if split == "equal" else "speed"
            found.append(Row(f"2 workers, one slowed to a third, --batch-split={name}: of the sum "
                             "of both speeds", "%", 100 * max(speeds[split]) / both,
                             more_is_better=True, target=target))
    return found
