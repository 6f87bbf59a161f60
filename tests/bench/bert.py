"""Training speed of a small BERT, in tokens/s, beside PyTorch's with masked positions gathered."""
import os
import re

from measure import HERE, Row, json_lines, own_home, peer_program, run

PEER = HERE / "peers" / "bert_torch.py"
SHAPE = ["--model=bert", "--layers=4", "--hidden=256", "--heads=4", "--ff=1024", "--max-length=128",
         "--batch-size=8"]


def trainer_speed(bench, workers, *more, program=None):
    with own_home() as env:
        # A GPU's windows need not be as long.
        seconds = "--benchmark=1" if program else "--benchmark=3"
        command = [program or bench.bin / "dtrain-trainer", *SHAPE, seconds, *more]
        if workers > 1:
            command = [bench.bin / "dtrain", "submit", f"--workers={workers}", "--wait", "--",
                       *SHAPE, seconds]
        return float(re.search(r"best (\d+) tokens/s", run(command, env=env)).group(1))


def peer_speed(command):
    out = run(command, env=dict(os.environ, OMP_NUM_THREADS="1"))
    return max(json_lines(out)[0]["tokens_per_second"])


def rows(bench):
    python = bench.find("PyTorch (./dev peers torch)", peer_program("torch", "python"))
    torchrun = peer_program("torch", "torchrun")
    found = []
    alone = 0
    for what, workers, more, name, command in (
            ("BERT 4 × 256, 1 core", 1, [], "PyTorch eager, fused Adam", python and [python, PEER]),
            ("BERT 4 × 256 in bf16, 1 core", 1, ["--precision=bf16"], "PyTorch autocast, fused Adam",
             python and [python, PEER, "--bf16"]),
            ("BERT 4 × 256, 2 workers", 2, [], "PyTorch DDP, gloo",
             torchrun and [torchrun, "--nproc-per-node=2", PEER])):
        measured = {"dtrain": lambda workers=workers, more=more:
                    trainer_speed(bench, workers, *more)}
        if command:
            measured[name] = lambda command=command: peer_speed(command)
        speeds = bench.interleaved(measured)
        ours = max(speeds["dtrain"])
        found.append(Row(what, "tokens/s", ours, name, max(speeds.get(name, [0])) or None,
                         more_is_better=True, target=1.4, peer_found=bool(command)))
        if workers == 1 and not more:
            alone = ours
        elif workers > 1:
            found.append(Row("BERT 4 × 256, 2 workers / 1", "×", ours / alone, more_is_better=True,
                             target=1.9))
    return found
