#!/usr/bin/env python3
"""clang-tidy over a build's translation units, remembering those that were clean.

usage: tidy.py BUILD CACHE

A unit's key is the digest of everything that its result depends on: clang-tidy, its settings, the
compile command and the bytes of each file that the compiler read (from ninja's record); not where
the checkout lies. A unit that was clean leaves an empty file of that name in CACHE, and is not
looked at again.
"""
import concurrent.futures
import functools
import hashlib
import json
import os
import pathlib
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def files_read(build):
    """Object file -> the files that its compiler read."""
    listing = subprocess.run(["ninja", "-C", build, "-t", "deps"], check=True,
                             capture_output=True, text=True).stdout
    read, current = {}, None
    for line in listing.splitlines():
        if line.startswith("    "):
            read[current].append((build / line.strip()).resolve())
        elif line:
            current = line.split(": #deps")[0]
            read[current] = []
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
    result = subprocess.run(
        ["clang-tidy", "--quiet", f"-p={build}", "--extra-arg=-Wno-unknown-warning-option", source],
        capture_output=True, text=True)
    # Of stderr only errors matter: the rest counts warnings in system headers.
    report = result.stdout
    if result.returncode != 0 and not report.strip():
        report = result.stderr
    return result.returncode == 0, report


def main():
    build, cache = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])
    cache.mkdir(parents=True, exist_ok=True)
    version = subprocess.run(["clang-tidy", "--version"], check=True, capture_output=True).stdout
    common = version + (ROOT / ".clang-tidy").read_bytes()
    read = files_read(build)
    stale = []
    for unit in json.loads((build / "compile_commands.json").read_text()):
        source = pathlib.Path(unit["file"])
        if build in source.parents:  # generated
            continue
        words = shlex.split(unit["command"])
        output = words[words.index("-o") + 1]
        if output not in read:
            sys.exit(f"tidy: {source.relative_to(ROOT)} is not built yet")
        key = key_of(unit, read[output], common + settings_below(source.parent))
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
