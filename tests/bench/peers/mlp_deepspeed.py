#!/usr/bin/env python3
"""The MLP 784-128-10 under DeepSpeed on a CPU, batch 64, at a stage of ZeRO, with Adam. Prints one
line of JSON.

usage: mlp_deepspeed.py STAGE [--seconds=1]; 2 ranks: torchrun --nproc-per-node=2 mlp_deepspeed.py …
"""
import argparse
import json
import os
import sys
import time

os.environ.update(DS_ACCELERATOR="cpu", OMP_NUM_THREADS="1")
for name, value in {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1",
                    "MASTER_PORT": "29517"}.items():
    os.environ.setdefault(name, value)
out = os.dup(1)
os.dup2(2, 1)  # DeepSpeed logs to standard output.
import deepspeed
import torch
from torch import nn
from torch.nn import functional as F

BATCH, WINDOWS = 64, 5

parser = argparse.ArgumentParser()
parser.add_argument("stage", type=int)
parser.add_argument("--seconds", type=float, default=1)
options = parser.parse_args()
torch.set_num_threads(1)
torch.set_flush_denormal(True)
torch.manual_seed(0)
deepspeed.init_distributed("gloo")
world = int(os.environ["WORLD_SIZE"])
model = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
engine, *_ = deepspeed.initialize(
    model=model, optimizer=torch.optim.Adam(model.parameters(), lr=1e-3, fused=True),
    config={"train_micro_batch_size_per_gpu": BATCH, "zero_allow_untested_optimizer": True,
            "zero_optimization": {"stage": options.stage}, "steps_per_print": 10 ** 9})
images = torch.randint(0, 256, (10_000, 784), dtype=torch.uint8)
labels = torch.randint(0, 10, (10_000,))


def step():
    rows = torch.randint(0, len(images), (BATCH,))
    engine.backward(F.cross_entropy(engine(images[rows].float() / 255), labels[rows]))
    engine.step()


for _ in range(20):
    step()
speeds = []
for _ in range(WINDOWS):
    steps = 0
    torch.distributed.barrier()
    begin = time.perf_counter()
    while True:
        for _ in range(20):
            step()
        steps += 20
        # All ranks take as many steps.
        over = torch.tensor(time.perf_counter() - begin > options.seconds, dtype=torch.int)
        torch.distributed.all_reduce(over, op=torch.distributed.ReduceOp.MAX)
        if over:
            break
    speeds.append(steps * BATCH * world / (time.perf_counter() - begin))
if int(os.environ["RANK"]) == 0:
    os.write(out, (json.dumps({"samples_per_second": speeds, "flushes_denormals": True})
                   + "\n").encode())
sys.stdout.flush()
