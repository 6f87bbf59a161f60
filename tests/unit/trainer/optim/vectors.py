#!/usr/bin/env python3
"""Writes torch_vectors.h beside this file: what PyTorch's optimizers make of known numbers.

usage: vectors.py     with a Python that has torch (./dev peers torch brings one)
"""
import math
import pathlib
import sys

import torch

SIZES, STEPS, LR = (16, 32), 5, 0.01
AS_ADAMW = "match_rms_adamw"


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


def orthogonal(matrix, coefficients, rounds, eps):
    """PyTorch's _zeropower_via_newtonschulz(), in float32 instead of bf16."""
    a, b, c = coefficients
    x = matrix.T if matrix.size(0) > matrix.size(1) else matrix
    x = x / x.norm().clamp(min=eps)
    for _ in range(rounds):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.T if matrix.size(0) > matrix.size(1) else x


class Grouped:
    """The first of two parameters, a bias, by one optimizer, and the second, a matrix of so many
    rows, by another."""
    def __init__(self, p, rows, of_bias, of_matrix):
        self.matrix = p[1].detach().reshape(rows, -1).requires_grad_()
        self.p, self.of_bias, self.of_matrix = p, of_bias([p[0]]), of_matrix([self.matrix])

    def step(self):
        self.matrix.grad = self.p[1].grad.reshape(self.matrix.shape)
        self.of_bias.step()
        self.of_matrix.step()
        self.p[1].data.copy_(self.matrix.detach().flatten())


def muon(p, rows, decay):
    return Grouped(p, rows, lambda p: torch.optim.AdamW(p, LR, weight_decay=decay),
                   lambda p: torch.optim.Muon(p, LR, momentum=0.9, weight_decay=decay,
                                              adjust_lr_fn=AS_ADAMW))


def trained_by_muon(make):
    """In float32. PyTorch's bf16 comes to the same, where rounding is not all that a direction has,
    as it is here: these gradients are of rank 2."""
    module = sys.modules["torch.optim._muon"]
    theirs, module._zeropower_via_newtonschulz = module._zeropower_via_newtonschulz, orthogonal
    of_full_rank = torch.randn(6, 9, generator=torch.Generator().manual_seed(1))
    for matrix in (of_full_rank, of_full_rank.T):
        arguments = (matrix, (3.4445, -4.7750, 2.0315), 5, 1e-7)
        assert (orthogonal(*arguments) - theirs(*arguments).float()).abs().max() < 0.02
    found = trained(make)
    module._zeropower_via_newtonschulz = theirs
    return found


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


# Rule, momentum, weight decay, norm to clip to, rows of the second parameter (0: none, it is no
# matrix), whether the first one, a bias, decays.
CASES = [
    ("sgd", 0.9, 0.0, 0, 0, True, lambda p: torch.optim.SGD(p, LR, momentum=0.9)),
    ("sgd", 0.5, 0.1, 0, 0, True, lambda p: torch.optim.SGD(p, LR, momentum=0.5, weight_decay=0.1)),
    ("adam", 0.9, 0.0, 0, 0, True, lambda p: torch.optim.Adam(p, LR)),
    ("adam", 0.9, 0.1, 0, 0, True, lambda p: torch.optim.Adam(p, LR, weight_decay=0.1)),
    ("adamw", 0.9, 0.1, 0, 0, True, lambda p: torch.optim.AdamW(p, LR, weight_decay=0.1)),
    ("lamb", 0.9, 0.1, 0, 0, True, lambda p: Lamb(p, LR, weight_decay=0.1)),
    ("sgd", 0.9, 0.0, 0.5, 0, True, lambda p: torch.optim.SGD(p, LR, momentum=0.9)),
    ("adamw", 0.9, 0.1, 0, 4, False,
     lambda p: Grouped(p, 4, lambda p: torch.optim.AdamW(p, LR, weight_decay=0),
                       lambda p: torch.optim.AdamW(p, LR, weight_decay=0.1))),
    ("sgd", 0.9, 0.1, 0, 4, False,
     lambda p: Grouped(p, 4, lambda p: torch.optim.SGD(p, LR, momentum=0.9),
                       lambda p: torch.optim.SGD(p, LR, momentum=0.9, weight_decay=0.1))),
    ("muon", 0.9, 0.1, 0, 4, True, lambda p: muon(p, 4, 0.1)),
    ("muon", 0.9, 0.0, 0, 16, True, lambda p: muon(p, 16, 0.0)),
]

with open(pathlib.Path(__file__).with_name("torch_vectors.h"), "w") as out:
    print(f"// Written by vectors.py with PyTorch {torch.__version__.partition('+')[0]}.\n#pragma once"
          "\n\n#include <cstddef>\n#include <vector>\n\nstruct TorchCase {\n  const char* rule;\n"
          "  double momentum;\n"
          "  double weight_decay;\n  double clip_norm;\n"
          "  std::size_t rows; ///< Of the second parameter; 0: it is a vector.\n"
          "  bool decays_vectors;\n"
          "  std::vector<float> parameters;\n};\n\n"
          "inline const std::vector<TorchCase> k_torch_cases = {", file=out)
    for rule, momentum, decay, clip, rows, decays, make in CASES:
        found = trained_by_muon(make) if rule == "muon" else trained(make, clip)
        numbers = ", ".join(f"{x:.9g}F" if "." in f"{x:.9g}" else f"{x:.9g}.0F" for x in found)
        print(f'    {{"{rule}", {momentum}, {decay}, {clip}, {rows}, {str(decays).lower()}, '
              f'{{{numbers}}}}},', file=out)
    print("};", file=out)
