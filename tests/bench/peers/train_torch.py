#!/usr/bin/env python3
"""PyTorch's training speed with Adam on uint8 images of MNIST's shape: on the MLP 784-128(ReLU)-10,
or on the small convolutional network of dtrain-trainer --model=cnn, channels last.

usage: train_torch.py [--model mlp|cnn] [--batch B] [--fused] [--windows N] [--seconds S]
                      [--device cpu|cuda] [--tf32]
With cuda each step but the getting of its batch is a CUDA graph, with one process. One process, or
DistributedDataParallel over gloo under torchrun (B is per replica). One thread.
Prints one JSON line: samples/s over all replicas of each timed window, and whether floats below
2^-126 become zero (torch.set_flush_denormal), without which Adam slows down on some machines.
"""
import argparse
import json
import os
import time

os.environ["OMP_NUM_THREADS"] = "1"
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

parser = argparse.ArgumentParser()
parser.add_argument("--model", choices=["mlp", "cnn"], default="mlp")
parser.add_argument("--batch", type=int, default=64)
parser.add_argument("--fused", action="store_true")
parser.add_argument("--windows", type=int, default=3)
parser.add_argument("--seconds", type=float, default=1.0)
parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
parser.add_argument("--tf32", action="store_true")  # Else float32, convolutions too.
args = parser.parse_args()

torch.set_num_threads(1)
torch.backends.cudnn.allow_tf32 = args.tf32
torch.set_float32_matmul_precision("high" if args.tf32 else "highest")
torch.manual_seed(0)
world, rank = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
if world > 1:
    dist.init_process_group("gloo")

SAMPLES = 60000
images = torch.randint(0, 256, (SAMPLES, 1, 28, 28), dtype=torch.uint8)
labels = torch.randint(0, 10, (SAMPLES,))
if args.model == "cnn":
    layout = torch.channels_last
    model = nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.MaxPool2d(2), nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1), nn.MaxPool2d(2), nn.ReLU(),
        nn.Flatten(), nn.Linear(7 * 7 * 64, 128), nn.ReLU(), nn.Linear(128, 10))
    model = model.to(memory_format=layout)
else:
    layout = torch.contiguous_format
    images = images.view(SAMPLES, 784)
    model = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
model = model.to(args.device)
images, labels = images.to(args.device), labels.to(args.device)
if world > 1:
    model = nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=args.fused or None,
                             capturable=args.device == "cuda")


def batches():
    """By index, which is about twice as fast as a DataLoader."""
    while True:
        order = torch.randperm(SAMPLES, device=args.device)[rank::world]
        for start in range(0, len(order) - args.batch + 1, args.batch):
            chosen = order[start:start + args.batch]
            yield images[chosen], labels[chosen]


batch = batches()


def train(x, y):
    x = x.float().mul_(1 / 255.0).contiguous(memory_format=layout)
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()


def step():
    train(*next(batch))


for _ in range(20):
    step()
if args.device == "cuda":  # As PyTorch's manual has it: warmed up on another stream, then captured.
    held = [part.clone() for part in next(batch)]
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            train(*held)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        train(*held)

    def step():
        for to, part in zip(held, next(batch)):
            to.copy_(part)
        graph.replay()


def wait():
    if args.device == "cuda":
        torch.cuda.synchronize()


wait()
start = time.perf_counter()
for _ in range(10):
    step()
wait()
steps = max(20, int(args.seconds / ((time.perf_counter() - start) / 10)))
if world > 1:
    agreed = torch.tensor([steps])
    dist.broadcast(agreed, 0)
    steps = int(agreed)
rates = []
for _ in range(args.windows):
    if world > 1:
        dist.barrier()
    start = time.perf_counter()
    for _ in range(steps):
        step()
    wait()
    if world > 1:
        dist.barrier()
    rates.append(steps * args.batch * world / (time.perf_counter() - start))
if rank == 0:
    tiny = torch.full((64,), 2.0 ** -126) * 0.25
    print(json.dumps({"version": torch.__version__, "samples_per_second": rates,
                      "flushes_denormals": not tiny.any().item()}), flush=True)
if world > 1:
    dist.destroy_process_group()
