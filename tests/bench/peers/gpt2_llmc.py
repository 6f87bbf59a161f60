#!/usr/bin/env python3
"""GPT-2 learning each next token in llm.c's program for CPUs, compiled as its Makefile has it: float32, AdamW,
random weights and tokens, on one core. Prints one line of JSON.

usage: gpt2_llmc.py SOURCE [--layers=4] [--hidden=256] [--heads=4] [--length=128] [--batch=8] [--steps=4]
"""
import argparse
import array
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import tempfile

VOCABULARY, PADDED = 50257, 50304
HEADER = 256  # Numbers of 32 bits in front of a model and of tokens.

def read_options():
    parser = argparse.ArgumentParser()
    parser.add_argument("source", type=pathlib.Path)
    for name, value in (("layers", 4), ("hidden", 256), ("heads", 4), ("length", 128), ("batch", 8), ("steps", 4)):
        parser.add_argument(f"--{name}", type=int, default=value)
    return parser.parse_args()


def header(*numbers):
    return array.array("i", numbers + (0,) * (HEADER - len(numbers))).tobytes()


def write_model(path, options):
    width, layers = options.hidden, options.layers
    parameters = (PADDED + options.length + 2) * width + layers * (12 * width + 13) * width
    block = array.array("f", (random.gauss(0, 0.02) for _ in range(1 << 16))).tobytes()
    with path.open("wb") as file:
        file.write(header(20240326, 3, options.length, VOCABULARY, layers, options.heads, width, PADDED))
        for left in range(4 * parameters, 0, -len(block)):
            file.write(block[:left])


def write_tokens(path, count):
    path.parent.mkdir(parents=True, exist_ok=True)
    tokens = array.array("H", (random.randrange(VOCABULARY) for _ in range(count)))
    path.write_bytes(header(20240520, 1, count) + tokens.tobytes())


def program(folder, options):
    """Of this batch and length, and of so few steps that it generates nothing."""
    for name in ("Makefile", "llmc"):
        copy = shutil.copytree if (options.source / name).is_dir() else shutil.copy
        copy(options.source / name, folder / name)
    text = (options.source / "train_gpt2.c").read_text()
    for what, value in (("int B = 4;", f"int B = {options.batch};"), ("int T = 64;", f"int T = {options.length};"),
                        ("step <= 40;", f"step < {options.steps};"),
                        ("val_num_batches = 5;", "val_num_batches = 0;")):
        assert text.count(what) == 1, what
        text = text.replace(what, value)
    (folder / "train_gpt2.c").write_text(text)
    subprocess.run(["make", "CC=gcc", "train_gpt2"], cwd=folder, check=True, capture_output=True)
    return folder / "train_gpt2"


def main():
    options = read_options()
    random.seed(0)
    with tempfile.TemporaryDirectory(prefix="dtrain-bench-") as name:
        folder = pathlib.Path(name)
        write_model(folder / "gpt2_124M.bin", options)
        for half in ("train", "val"):
            write_tokens(folder / f"dev/data/tinyshakespeare/tiny_shakespeare_{half}.bin",
                         (options.steps + 2) * options.batch * options.length + 1)
        out = subprocess.run([program(folder, options)], cwd=folder, check=True, capture_output=True, text=True,
                             env=dict(os.environ, OMP_NUM_THREADS="1")).stdout
        times = [float(found) / 1000 for found in re.findall(r"took ([0-9.]+) ms", out)]
        print(json.dumps({"tokens_per_second": [options.batch * options.length / seconds for seconds in times]}))


if __name__ == "__main__":
    main()
