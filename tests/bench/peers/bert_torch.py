#!/usr/bin/env python3
"""BERT's masked language model in PyTorch, the head on masked positions alone, as the trainer does
it: tied decoder, GELU, dropout, Adam, random tokens. Prints one line of JSON.

usage: bert_torch.py [--large] [--batch=8] [--seconds=3] [--bf16] [--device=cpu|cuda] [--compile]
--large: BERT-large, 512 tokens a row, without dropout. --compile: each layer by torch.compile.
2 ranks: torchrun --nproc-per-node=2 bert_torch.py
"""
import argparse
import json
import os
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

WORDS, MASKED = 30522, 0.15
WINDOWS = 5

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=8)
parser.add_argument("--seconds", type=float, default=3)
parser.add_argument("--bf16", action="store_true")
parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
parser.add_argument("--large", action="store_true")
parser.add_argument("--compile", action="store_true")
options = parser.parse_args()
LAYERS, HIDDEN, HEADS, FF, LENGTH, DROPOUT = ((24, 1024, 16, 4096, 512, 0) if options.large else
                                              (4, 256, 4, 1024, 128, 0.1))
torch.set_num_threads(1)
torch.set_flush_denormal(True)
torch.manual_seed(0)
world = int(os.environ.get("WORLD_SIZE", 1))
if world > 1:
    dist.init_process_group("gloo")


class Bert(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, HIDDEN)
        self.positions = nn.Embedding(512, HIDDEN)
        self.types = nn.Embedding(2, HIDDEN)
        self.norm = nn.LayerNorm(HIDDEN)
        self.dropout = nn.Dropout(DROPOUT)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(HIDDEN, HEADS, FF, DROPOUT, "gelu", batch_first=True)
            for _ in range(LAYERS))
        self.dense = nn.Linear(HIDDEN, HIDDEN)
        self.head_norm = nn.LayerNorm(HIDDEN)
        self.bias = nn.Parameter(torch.zeros(WORDS))

    def forward(self, ids, places, targets):
        x = self.words(ids) + self.positions.weight[:LENGTH] + self.types.weight[0]
        x = self.dropout(self.norm(x))
        for layer in self.layers:
            x = layer(x)
        h = self.head_norm(F.gelu(self.dense(x.reshape(-1, HIDDEN)[places])))
        return F.cross_entropy(F.linear(h, self.words.weight, self.bias), targets)


model = Bert().to(options.device)
for part in model.modules():
    if isinstance(part, (nn.Linear, nn.Embedding)):
        nn.init.normal_(part.weight, std=0.02)
if options.compile:
    for layer in model.layers:
        layer.compile()
if world > 1:
    model = nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)


def step():
    ids = torch.randint(5, WORDS, (options.batch, LENGTH), device=options.device)
    places = (torch.rand(ids.numel(), device=options.device) < MASKED).nonzero()[:, 0]
    targets = ids.view(-1)[places]
    ids.view(-1)[places] = 4
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast(options.device, dtype=torch.bfloat16, enabled=options.bf16):
        loss = model(ids, places, targets)
    loss.backward()
    optimizer.step()
    return loss.item() if options.device == "cpu" else loss  # A GPU is not waited for in each step.


def run(steps):
    if world > 1:
        dist.barrier()
    begin, cpu = time.perf_counter(), time.process_time()
    for _ in range(steps):
        step()
    if options.device == "cuda":
        torch.cuda.synchronize()
    if world > 1:
        dist.barrier()
    tokens = steps * options.batch * LENGTH
    return (tokens * world / (time.perf_counter() - begin), tokens / (time.process_time() - cpu))


run(2)
steps = max(2, round(options.seconds * run(2)[0] / world / (options.batch * LENGTH)))
if world > 1:
    agreed = torch.tensor(steps)
    dist.broadcast(agreed, 0)
    steps = int(agreed)
rates = [run(steps) for _ in range(WINDOWS)]
if int(os.environ.get("RANK", 0)) == 0:
    print(json.dumps({"tokens_per_second": [rate for rate, _ in rates],
                      "tokens_per_cpu_second": max(rate for _, rate in rates),
                      "version": torch.__version__}), flush=True)
if world > 1:
    dist.destroy_process_group()
