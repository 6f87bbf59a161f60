#!/usr/bin/python3
"""Measures dtrain beside the peers that this machine has, interleaved, and prints ratios.

usage: bench.py --build BUILD [--rounds N] [--record] [cli] [mlp] [bert] [gpt2] [adam] [zero] [checkpoint] [offload]
                [allreduce] [strategies] [accuracy] [text] [tokens] [gpu] [kubernetes] [slurm] [ssh]
"""
import argparse
import datetime
import os
import pathlib
import platform
import re
import sys

import accuracy
import adam
import allreduce
import bert
import checkpoint
import cli
import gpt2
import gpu
import kubernetes
import measure
import mlp
import offload
import slurm
import ssh
import strategies
import text
import tokens
import zero

SUBJECTS = {"cli": cli.rows, "mlp": mlp.rows, "bert": bert.rows, "gpt2": gpt2.rows, "adam": adam.rows,
            "allreduce": allreduce.rows, "strategies": strategies.rows, "accuracy": accuracy.rows,
            "text": text.rows, "tokens": tokens.rows, "zero": zero.rows, "checkpoint": checkpoint.rows,
            "offload": offload.rows, "gpu": gpu.rows, "kubernetes": kubernetes.rows, "slurm": slurm.rows,
            "ssh": ssh.rows}
# A GPU, or a cluster: its packages, of which Kubernetes has to be compiled.
ON_DEMAND = {"gpu", "kubernetes", "slurm", "ssh"}
RESULTS = pathlib.Path(__file__).with_name("RESULTS.md")


def number(value):
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def cells(row):
    if row.peer:
        theirs = number(row.theirs) if row.peer_found else "not found"
        ratio = "–" if row.ratio() is None else f"{row.ratio():.2f} ×"
        target = "" if row.target is None else f"≥ {row.target:g} ×"
    else:
        theirs, ratio = "", ""
        target = "" if row.target is None else f"{'≥' if row.more_is_better else '≤'} {row.target:g}"
    met = {True: "met", False: "missed", None: ""}[row.met()]
    return [row.what, row.unit, number(row.ours), row.peer, theirs, ratio, target, met]


HEADINGS = ["what", "unit", "dtrain", "peer", "peer's", "ratio", "target", ""]


def table(rows):
    lines = [HEADINGS] + [cells(row) for row in rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(HEADINGS))]
    return "\n".join("  ".join(text.ljust(width) for text, width in zip(line, widths)).rstrip()
                     for line in lines)


def markdown(rows):
    lines = [HEADINGS, ["---"] * len(HEADINGS)] + [cells(row) for row in rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def machine():
    model = next((line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo")
                  if line.startswith("model name")), platform.machine())
    return f"{os.cpu_count()} cores, {model}, Linux {platform.release()}"


def sgemm_line(before, after):
    return "SGEMM on one core, GFLOP/s before → after: " + ", ".join(
        f"{shape} {before[shape]:.0f} → {after[shape]:.0f}" for shape in before)


def denormals_line(flushes):
    return "Denormals: " + ", ".join(f"{name} {'flushes' if does else 'keeps'} them"
                                     for name, does in {"dtrain": True, **flushes}.items())


def record(sections):
    """Puts {subject: text} in the place of what RESULTS.md had of these subjects; the rest stays."""
    head, *old = re.split(r"^(?=## )", RESULTS.read_text(), flags=re.M)
    kept = [text for text in old if not any(text.startswith(f"## {name}, ") for name in sections)]
    RESULTS.write_text(head + "".join(sections.values()) + "".join(kept))


def main():
    parser = argparse.ArgumentParser(prog="./dev bench")
    parser.add_argument("--build", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--record", action="store_true", help="write these subjects' sections of tests/bench/RESULTS.md")
    parser.add_argument("what", nargs="*", metavar="WHAT", help=", ".join(SUBJECTS) + ", all")
    args = parser.parse_args()
    chosen = args.what
    if not chosen or "all" in chosen:
        chosen = [name for name in SUBJECTS if name not in ON_DEMAND]
    for name in chosen:
        if name not in SUBJECTS:
            parser.error(f"nothing named '{name}': {', '.join(SUBJECTS)} or all")

    bench = measure.Bench(args.build, args.rounds)
    title = f"{machine()}; load {os.getloadavg()[0]:.1f} at the start"
    if "gpu" in chosen:
        title = f"{gpu.machine()}; {title}"
    print(title)
    is_on_cpus = set(chosen) != {"gpu"}
    before = measure.sgemm(bench) if is_on_cpus else None
    found = {}
    for name in chosen:
        found[name] = []
        try:
            for row in SUBJECTS[name](bench):
                found[name].append(row)
                print("  ".join(cell for cell in cells(row) if cell), file=sys.stderr, flush=True)
        finally:  # Those in front of one that failed, too.
            print(f"\n{name}\n{table(found[name])}", flush=True)
    rows = sum(found.values(), [])
    sgemm = sgemm_line(before, measure.sgemm(bench)) + ". " if is_on_cpus else ""
    print(f"\n{sgemm}")
    denormals = denormals_line(bench.flushes_denormals)
    print(denormals)
    missing = ""
    if bench.missing:
        missing = f"Not found, so not measured: {'; '.join(bench.missing)}."
        print(missing)
    if args.record:
        about = (f"{title}. {args.rounds} interleaved round{'s' * (args.rounds > 1)}, the best of each side.\n\n{sgemm}"
                 f"{denormals}. {missing}").rstrip()
        record({name: f"## {name}, {datetime.date.today().isoformat()}\n\n{about}\n\n"
                      f"{markdown(found[name])}\n\n" for name in chosen})
    missed = sum(row.met() is False for row in rows)
    print(f"{sum(row.met() is True for row in rows)} targets met, {missed} missed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
