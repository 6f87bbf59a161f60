#!/usr/bin/env python3
"""clang-tidy over a build's translation units, remembering those that were clean.

usage: tidy.py BUILD CACHE

BUILD is configured so that each file is compiled by itself; nothing of it need be built.

A unit's key is the digest of everything that its result depends on: clang-tidy, its settings, the
compile command, the bytes of each file of ours that it includes, and the versions of the installed
packages that bring headers; not where the checkout lies. A unit that was clean leaves an empty file
of that name in CACHE, and is not looked at again.
"""
import concurrent.futures
import functools
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Paths through a function that the analyzer follows, of 225,000: three quarters of clang-tidy's time
# went into a few long functions.
FLAGS = ["--quiet", "--extra-arg=-Wno-unknown-warning-option",
         *(f"--extra-arg={word}" for word in ("-Xclang", "-analyzer-config", "-Xclang",
                                              "max-nodes=20000"))]
INCLUDE = re.compile(rb'^\s*#\s*include\s+"([^"]+)"', re.M)


@functools.cache
def includes_of(path):
    names = [name.decode() for name in INCLUDE.findall(path.read_bytes())]
    return [folder / name for name in names for folder in (path.parent, ROOT)]


def files_read(source):
    """The files of ours that a source is made of, itself first."""
    read, queue = [], [source]
    while queue:
        path = queue.pop()
        if path not in read and path.exists():
            read.append(path)
            queue.extend(includes_of(path))
    return read


@functools.cache
def digest_of_file(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def key_of(unit, read, common):
    digest = hashlib.sha256(common)
    for text in [unit["command"], *(f"{path} {digest_of_file(path)}" for path in read)]:
        digest.update(text.replace(str(ROOT), ".").encode() + b"\n")
    return digest.hexdigest()


@functools.cache
def settings_below(folder):
    """The settings of the folders between the root and `folder`, which take the root's place."""
    folders = [parent for parent in [folder, *folder.parents] if ROOT in parent.parents]
    return b"".join((parent / ".clang-tidy").read_bytes() for parent in folders
                    if (parent / ".clang-tidy").exists())


def tidy(build, source):
    result = subprocess.run(["clang-tidy", *FLAGS, f"-p={build}", source], capture_output=True,
                            text=True)
    # Of stderr only errors matter: the rest counts warnings in system headers.
    report = result.stdout
    if result.returncode != 0 and not report.strip():
        report = result.stderr
    return result.returncode == 0, report


def main():
    build, cache = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])
    cache.mkdir(parents=True, exist_ok=True)
    version = subprocess.run(["clang-tidy", "--version"], check=True, capture_output=True).stdout
    headers = subprocess.run(["dpkg-query", "-W", "*-dev"], check=True, capture_output=True).stdout
    common = version + headers + (ROOT / ".clang-tidy").read_bytes()
    stale = []
    for unit in json.loads((build / "compile_commands.json").read_text()):
        source = pathlib.Path(unit["file"])
        if build in source.parents:  # generated
            continue
        key = key_of(unit, files_read(source), common + settings_below(source.parent))
        if not (cache / key).exists():
            stale.append((source, key))

    failed = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        results = pool.map(lambda job: tidy(build, job[0]), stale)
        for (source, key), (clean, report) in zip(stale, results):
            if clean:
                (cache / key).touch()
            else:
                failed += 1
                print(report, flush=True)
    if failed:
        sys.exit(f"tidy: {failed} of {len(stale)} files need work")


if __name__ == "__main__":
    main()
