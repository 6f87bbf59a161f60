#!/usr/bin/env python3
"""gloo's all-reduce (sum of float32), under torchrun.

usage: torchrun --nproc-per-node N allreduce_gloo.py BYTES...
Prints one JSON line a size: seconds, the best of several repetitions and their median.
"""
import json
import os
import statistics
import sys
import time

os.environ["OMP_NUM_THREADS"] = "1"
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

torch.set_num_threads(1)
dist.init_process_group("gloo")
for size in map(int, sys.argv[1:]):
    buffer = torch.ones(size // 4)
    dist.all_reduce(buffer)
    assert float(buffer.min()) == float(buffer.max()) == dist.get_world_size()
    times = []
    for _ in range(200 if size <= 1 << 20 else 20 if size <= 1 << 24 else 8):
        buffer.fill_(1)
        dist.barrier()
        start = time.perf_counter()
        dist.all_reduce(buffer)
        times.append(time.perf_counter() - start)
    if dist.get_rank() == 0:
        print(json.dumps({"version": torch.__version__, "bytes": size, "best": min(times),
                          "median": statistics.median(times)}), flush=True)
dist.destroy_process_group()
