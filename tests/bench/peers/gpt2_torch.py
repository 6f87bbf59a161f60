#!/usr/bin/env python3
"""GPT-2 learning each next token in PyTorch: fused attention, fused AdamW, no dropout, the vocabulary padded
to a multiple of 128, random tokens; on a GPU in bf16 autocast, on one core of a CPU in float32. Prints one
line of JSON.

usage: gpt2_torch.py [--device=cuda|cpu] [--layers=12] [--hidden=768] [--heads=12] [--length=1024] [--batch=8]
                     [--seconds=2] [--compile]
"""
import argparse
import json
import os
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")
import torch
from torch import nn
from torch.nn import functional as F

WORDS, WINDOWS = 50304, 3

parser = argparse.ArgumentParser()
parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
for name, value in (("layers", 12), ("hidden", 768), ("heads", 12), ("length", 1024), ("batch", 8)):
    parser.add_argument(f"--{name}", type=int, default=value)
parser.add_argument("--seconds", type=float, default=2)
parser.add_argument("--compile", action="store_true")
options = parser.parse_args()
HIDDEN, HEADS, LENGTH = options.hidden, options.heads, options.length
torch.set_num_threads(1)
torch.set_flush_denormal(True)
torch.manual_seed(0)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(HIDDEN), nn.LayerNorm(HIDDEN)
        self.heads, self.mix = nn.Linear(HIDDEN, 3 * HIDDEN), nn.Linear(HIDDEN, HIDDEN)
        self.up, self.down = nn.Linear(HIDDEN, 4 * HIDDEN), nn.Linear(4 * HIDDEN, HIDDEN)

    def forward(self, x):
        rows, length, _ = x.shape
        parts = self.heads(self.norm1(x)).view(rows, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.mix(y.transpose(1, 2).reshape(rows, length, HIDDEN))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.positions = nn.Embedding(WORDS, HIDDEN), nn.Embedding(LENGTH, HIDDEN)
        self.layers = nn.ModuleList(Layer() for _ in range(options.layers))
        self.norm = nn.LayerNorm(HIDDEN)

    def forward(self, ids, targets):
        x = self.words(ids) + self.positions.weight
        for layer in self.layers:
            x = layer(x)
        logits = F.linear(self.norm(x), self.words.weight)
        return F.cross_entropy(logits.view(-1, WORDS).float(), targets.reshape(-1))


model = Gpt2().to(options.device)
for part in model.modules():
    if isinstance(part, (nn.Linear, nn.Embedding)):
        nn.init.normal_(part.weight, std=0.02)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
loss_of = torch.compile(model) if options.compile else model


def step():
    ids = torch.randint(WORDS, (options.batch, LENGTH + 1), device=options.device)
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast(options.device, dtype=torch.bfloat16, enabled=options.device == "cuda"):
        loss = loss_of(ids[:, :-1], ids[:, 1:])
    loss.backward()
    optimizer.step()


def wait():
    if options.device == "cuda":
        torch.cuda.synchronize()


def run(steps):
    wait()
    begin = time.perf_counter()
    for _ in range(steps):
        step()
    wait()
    return steps * options.batch * LENGTH / (time.perf_counter() - begin)


run(3)
steps = max(2, round(options.seconds * run(3) / (options.batch * LENGTH)))
print(json.dumps({"tokens_per_second": [run(steps) for _ in range(WINDOWS)],
                  "version": torch.__version__}), flush=True)
