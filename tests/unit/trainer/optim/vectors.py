#!/usr/bin/env python3
"""Writes torch_vectors.h beside this file: what PyTorch's optimizers make of known numbers.

usage: vectors.py     with a Python that has torch (./dev peers torch brings one)
"""
import math
import pathlib

import torch

SIZES, STEPS, LR = (16, 32), 5, 0.01


def value(i):
    return math.cos(0.3 * i)


def gradient(i, step):
    return math.sin(0.1 * i + step)


class Lamb(torch.optim.Optimizer):
    """You et al., 2020, algorithm 2, with a correction of both moments; PyTorch has none."""
    def __init__(self, params, lr, weight_decay=0.0):
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                s = self.state[p]
                s["t"] = s.get("t", 0) + 1
                s["m"] = 0.9 * s.get("m", torch.zeros_like(p)) + 0.1 * p.grad
                s["v"] = 0.999 * s.get("v", torch.zeros_like(p)) + 0.001 * p.grad ** 2
                u = (s["m"] / (1 - 0.9 ** s["t"])
                     / ((s["v"] / (1 - 0.999 ** s["t"])).sqrt() + 1e-8))
                u += group["weight_decay"] * p
                p -= group["lr"] * p.norm() / u.norm() * u


def trained(make, clip=None):
    parameters, first = [], 0
    for size in SIZES:
        parameters.append(torch.tensor([value(first + i) for i in range(size)], requires_grad=True))
        first += size
    optimizer = make(parameters)
    for step in range(1, STEPS + 1):
        first = 0
        for p in parameters:
            p.grad = torch.tensor([gradient(first + i, step) for i in range(len(p))])
            first += len(p)
        if clip:
            torch.nn.utils.clip_grad_norm_(parameters, clip)
        optimizer.step()
    return torch.cat([p.detach() for p in parameters]).tolist()


CASES = [
    ("sgd", 0.9, 0.0, 0, lambda p: torch.optim.SGD(p, LR, momentum=0.9)),
    ("sgd", 0.5, 0.1, 0, lambda p: torch.optim.SGD(p, LR, momentum=0.5, weight_decay=0.1)),
    ("adam", 0.9, 0.0, 0, lambda p: torch.optim.Adam(p, LR)),
    ("adam", 0.9, 0.1, 0, lambda p: torch.optim.Adam(p, LR, weight_decay=0.1)),
    ("adamw", 0.9, 0.1, 0, lambda p: torch.optim.AdamW(p, LR, weight_decay=0.1)),
    ("lamb", 0.9, 0.1, 0, lambda p: Lamb(p, LR, weight_decay=0.1)),
    ("sgd", 0.9, 0.0, 0.5, lambda p: torch.optim.SGD(p, LR, momentum=0.9)),
]

with open(pathlib.Path(__file__).with_name("torch_vectors.h"), "w") as out:
    print(f"// Written by vectors.py with PyTorch {torch.__version__.partition('+')[0]}.\n#pragma once"
          "\n\n#include <vector>\n\nstruct TorchCase {\n  const char* rule;\n  double momentum;\n"
          "  double weight_decay;\n  double clip_norm;\n  std::vector<float> parameters;\n};\n\n"
          "inline const std::vector<TorchCase> k_torch_cases = {", file=out)
    for rule, momentum, decay, clip, make in CASES:
        numbers = ", ".join(f"{x:.9g}F" if "." in f"{x:.9g}" else f"{x:.9g}.0F"
                            for x in trained(make, clip))
        print(f'    {{"{rule}", {momentum}, {decay}, {clip}, {{{numbers}}}}},', file=out)
    print("};", file=out)
