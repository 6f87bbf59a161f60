#!/usr/bin/env python3
"""Writes deepspeed_vectors.h: what DeepSpeed's schedules give to Adam, update by update.

With the deepspeed that `./dev peers deepspeed` brings: bin/python deepspeed_vectors.py > deepspeed_vectors.h
"""
import torch
from deepspeed.runtime import lr_schedules

PEAK = 0.01
CASES = [
    ("WarmupLR", "warmup", {"warmup_min_lr": 0.001, "warmup_max_lr": PEAK, "warmup_num_steps": 10},
     ".first = 0.001, .rise = 10"),
    ("WarmupLR", "warmup", {"warmup_max_lr": PEAK, "warmup_num_steps": 7, "warmup_type": "linear"},
     ".rise = 7, .is_linear = 1"),
    ("WarmupLR", "warmup", {"warmup_max_lr": PEAK, "warmup_num_steps": 1}, ".rise = 1"),
    ("WarmupDecayLR", "warmup_decay",
     {"total_num_steps": 20, "warmup_min_lr": 0.002, "warmup_max_lr": PEAK, "warmup_num_steps": 5},
     ".first = 0.002, .rise = 5, .fall = 20"),
    ("WarmupDecayLR", "warmup_decay",
     {"total_num_steps": 4, "warmup_max_lr": PEAK, "warmup_num_steps": 8, "warmup_type": "linear"},
     ".rise = 8, .fall = 4, .is_linear = 1"),
    ("WarmupCosineLR", "warmup_cosine",
     {"total_num_steps": 20, "warmup_min_ratio": 0.1, "warmup_num_steps": 6, "cos_min_ratio": 0.05},
     ".first = 0.1, .rise = 6, .fall = 20, .last = 0.05"),
    ("WarmupCosineLR", "warmup_cosine",
     {"total_num_steps": 15, "warmup_num_steps": 4, "warmup_type": "linear"},
     ".rise = 4, .fall = 15, .is_linear = 1"),
    ("OneCycle", "one_cycle",
     {"cycle_min_lr": 0.001, "cycle_max_lr": PEAK, "cycle_first_step_size": 6,
      "cycle_second_step_size": 9, "decay_step_size": 2, "decay_lr_rate": 0.5},
     ".first = 0.001, .rise = 6, .fall = 9, .decay_every = 2, .decay_rate = 0.5"),
    ("OneCycle", "one_cycle",
     {"cycle_min_lr": 0.001, "cycle_max_lr": PEAK, "cycle_first_step_size": 8,
      "cycle_first_stair_count": 4, "cycle_second_stair_count": 2},
     ".first = 0.001, .rise = 8, .fall = 8, .rise_stairs = 4, .fall_stairs = 2"),
]
UPDATES = 24


def rates(kind, parameters):
    optimizer = torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))], lr=PEAK)
    scheduler = getattr(lr_schedules, kind)(optimizer, **parameters)
    for _ in range(UPDATES):
        yield optimizer.param_groups[0]["lr"]
        scheduler.step()


print("// What DeepSpeed 0.19.8's schedules give to Adam (lr 0.01), made by deepspeed_vectors.py.\n"
      "#pragma once\n\n#include <vector>\n\n#include \"trainer/optim/learning_rate.h\"\n\n"
      "struct DeepSpeedRates {\n  trainer::LearningRate rate;\n  std::vector<double> expected;\n};\n\n"
      "inline const std::vector<DeepSpeedRates>& deepspeed_rates() {\n"
      "  using Schedule = trainer::LearningRate::Schedule;\n"
      "  static const std::vector<DeepSpeedRates> all = {")
for kind, name, parameters, fields in CASES:
    values = ", ".join(repr(float(rate)) for rate in rates(kind, parameters))
    print(f"      {{{{.peak = {PEAK}, .schedule = Schedule::{name}, {fields}}},\n       {{{values}}}}},")
print("  };\n  return all;\n}")
