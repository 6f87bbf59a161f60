#!/usr/bin/env python3
"""GPT-2 124M learning each next token in llm.c's program for GPUs, with cuDNN's attention: bf16 with float32
parameters beside, AdamW, random weights and tokens. Prints one line of JSON.

usage: gpt2_llmc_gpu.py PROGRAM PYTHON [--length=1024] [--batch=8] [--steps=60]
PROGRAM: of ./dev peers llmc-gpu. PYTHON: one whose PyTorch has the wheels of cuBLASLt and cuDNN.
"""
import argparse
import json
import os
import pathlib
import re
import subprocess
import tempfile

from gpt2_llmc import write_tokens

parser = argparse.ArgumentParser()
parser.add_argument("program")
parser.add_argument("python")
for name, value in (("length", 1024), ("batch", 8), ("steps", 60)):
    parser.add_argument(f"--{name}", type=int, default=value)
options = parser.parse_args()


def libraries():
    site = subprocess.run([options.python, "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])"],
                          check=True, capture_output=True, text=True).stdout.strip()
    return [str(folder) for folder in pathlib.Path(site).glob("nvidia/*/lib")]


with tempfile.TemporaryDirectory(prefix="dtrain-bench-") as name:
    files = [pathlib.Path(name, half + ".bin") for half in ("train", "val")]
    for file in files:
        write_tokens(file, (options.steps + 2) * options.batch * options.length + 1)
    path = ":".join(filter(None, [*libraries(), os.environ.get("LD_LIBRARY_PATH")]))
    out = subprocess.run([options.program, "-i", files[0], "-j", files[1], "-e", "d12", "-b", str(options.batch),
                          "-t", str(options.length), "-d", str(options.batch * options.length),
                          "-x", str(options.steps), "-v", "0", "-s", "0", "-h", "0", "-r", "0"],
                         cwd=name, check=True, capture_output=True, text=True,
                         env=dict(os.environ, LD_LIBRARY_PATH=path)).stdout
found = [float(rate) for rate in re.findall(r"\| (\d+) tok/s", out)]
print(json.dumps({"tokens_per_second": found[len(found) // 2:]}))
