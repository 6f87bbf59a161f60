"""Training speed of a small BERT, in tokens/s, beside PyTorch's with masked positions gathered."""
import os
import re

from measure import HERE, Row, json_lines, own_home, peer_program, run, sgemm

PEER = HERE / "peers" / "bert_torch.py"
SHAPE = ["--model=bert", "--layers=4", "--hidden=256", "--heads=4", "--ff=1024", "--max-length=128",
         "--batch-size=8"]
LARGE = ["--model=bert", "--preset=large", "--max-length=512", "--batch-size=32", "--dropout=0"]


def said_by(command, pattern):
    """A number of what --benchmark of a model of text says."""
    with own_home() as env:
        return float(re.search(pattern, run(command, env=env)).group(1))


def speed_of(*command):
    return said_by(command, r"best (\d+) tokens/s")


def gflops_of(*command):
    return said_by(command, r"([\d.]+) GFLOP/s a replica")


def share_of_peak(bench, command):
    """Percent of oneDNN's product that a core makes of the model's FLOPs, of runs in turn."""
    found = bench.interleaved({"model": lambda: gflops_of(*command), "sgemm": lambda: sgemm(bench)["square_1024"]})
    return 100 * max(found["model"]) / max(found["sgemm"])


def peer_speed(*command):
    out = run(command, env=dict(os.environ, OMP_NUM_THREADS="1"))
    return max(json_lines(out)[0]["tokens_per_second"])


def compare(bench, what, ours, peers):
    """`ours`: the command; `peers`: {name: (command, or None where it is not found; target)}."""
    measured = {"dtrain": lambda: speed_of(*ours)}
    measured |= {name: lambda command=command: peer_speed(*command)
                 for name, (command, _) in peers.items() if command}
    speeds = bench.interleaved(measured)
    return [Row(what, "tokens/s", max(speeds["dtrain"]), name, max(speeds.get(name, [0])) or None,
                more_is_better=True, target=target, peer_found=bool(command))
            for name, (command, target) in peers.items()]


def rows(bench):
    python = bench.find("PyTorch (./dev peers torch)", peer_program("torch", "python"))
    torchrun = peer_program("torch", "torchrun")
    one = [bench.bin / "dtrain-trainer", *SHAPE, "--benchmark=3"]
    two = [bench.bin / "dtrain", "submit", "--workers=2", "--wait", "--", *one[1:]]
    ddp = torchrun and [torchrun, "--nproc-per-node=2", PEER]
    found = [row for what, ours, name, peer in (
        ("BERT 4 × 256, 1 core", one, "PyTorch eager, fused Adam", python and [python, PEER]),
        ("BERT 4 × 256 in bf16, 1 core", [*one, "--precision=bf16"], "PyTorch autocast, fused Adam",
         python and [python, PEER, "--bf16"]),
        ("BERT 4 × 256, 2 workers", two, "PyTorch DDP, gloo", ddp))
        for row in compare(bench, what, ours, {name: (peer, 1.4)})]
    return [*found, Row("BERT 4 × 256, 2 workers / 1", "×", found[2].ours / found[0].ours,
                        more_is_better=True, target=1.9),
            Row("BERT 4 × 256, 1 core: model FLOPs / a product of oneDNN, 1024 × 1024 × 1024", "%",
                share_of_peak(bench, one), more_is_better=True, target=80)]
