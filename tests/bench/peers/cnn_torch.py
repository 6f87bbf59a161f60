#!/usr/bin/env python3
"""PyTorch's training speed on the small convolutional network of dtrain-trainer --model=cnn.

usage: cnn_torch.py [--batch B] [--windows N] [--seconds S]
One process, one thread, channels last, fused Adam. Prints one JSON line: samples/s of each timed
window, and whether floats below 2^-126 become zero (torch.set_flush_denormal).
"""
import argparse
import json
import os
import time

os.environ["OMP_NUM_THREADS"] = "1"
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=64)
parser.add_argument("--windows", type=int, default=3)
parser.add_argument("--seconds", type=float, default=1.0)
args = parser.parse_args()

torch.set_num_threads(1)
torch.manual_seed(0)

SAMPLES = 60000
images = torch.randint(0, 256, (SAMPLES, 1, 28, 28), dtype=torch.uint8)
labels = torch.randint(0, 10, (SAMPLES,))
model = nn.Sequential(
    nn.Conv2d(1, 32, 3, padding=1), nn.MaxPool2d(2), nn.ReLU(),
    nn.Conv2d(32, 64, 3, padding=1), nn.MaxPool2d(2), nn.ReLU(),
    nn.Flatten(), nn.Linear(7 * 7 * 64, 128), nn.ReLU(), nn.Linear(128, 10))
model = model.to(memory_format=torch.channels_last)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)


def batches():
    """By index, which is about twice as fast as a DataLoader."""
    while True:
        order = torch.randperm(SAMPLES)
        for start in range(0, len(order) - args.batch + 1, args.batch):
            chosen = order[start:start + args.batch]
            yield images[chosen], labels[chosen]


batch = batches()


def step():
    x, y = next(batch)
    x = x.float().mul_(1 / 255.0).contiguous(memory_format=torch.channels_last)
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()


for _ in range(10):
    step()
start = time.perf_counter()
for _ in range(5):
    step()
steps = max(10, int(args.seconds / ((time.perf_counter() - start) / 5)))
rates = []
for _ in range(args.windows):
    start = time.perf_counter()
    for _ in range(steps):
        step()
    rates.append(steps * args.batch / (time.perf_counter() - start))
tiny = torch.full((64,), 2.0 ** -126) * 0.25
print(json.dumps({"version": torch.__version__, "samples_per_second": rates,
                  "flushes_denormals": not tiny.any().item()}), flush=True)
