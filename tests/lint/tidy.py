#!/usr/bin/env python3
"""clang-tidy over a build's translation units, remembering those that were clean.

usage: tidy.py BUILD CACHE

BUILD is configured so that each file is compiled by itself; nothing of it need be built.

Checks go through the headers too, which takes them nine tenths of their time: units with the same
flags are looked at in batches, as one file that includes them. A batch that cannot be compiled as one
(two files may have a name in common) is halved, and again, until its parts can; where a part has a
fault, each of its units is looked at by itself. What compiles is asked of clang, which is quick, and
so is that each unit does by itself.

A unit's key is the digest of everything that its result depends on: clang-tidy, its settings, the
compile command, each file of ours that it includes, without comments but NOLINT, and the versions of
the installed packages that bring headers; not where the checkout lies. A unit that was clean leaves an empty file
of that name in CACHE, and is not looked at again. With DTRAIN_LINT_CHANGED set only units are looked at
that include a file of the change (see ../reach.py).
"""
import concurrent.futures
import functools
import hashlib
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import reach  # noqa: E402

BATCH = 12  # Units.
ROOT = reach.ROOT
# Paths through a function that the analyzer follows, of 225,000: three quarters of clang-tidy's time
# went into a few long functions.
FLAGS = ["--quiet", "--extra-arg=-Wno-unknown-warning-option",
         *(f"--extra-arg={word}" for word in ("-Xclang", "-analyzer-config", "-Xclang",
                                              "max-nodes=20000", "-Xclang",
                                              "-analyzer-opt-analyze-headers"))]
INCLUDE = re.compile(rb'^\s*#\s*include\s+"([^"]+)"', re.M)
# Raw strings, strings, characters (not the ' within a number), and comments to the end of a line.
PIECE = re.compile(rb"""R"([^(\s"]*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<!\w)'(?:\\.|[^'\\\n])+'|\s*//[^\n]*""", re.S)


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


def without_comments(text):
    code = PIECE.sub(lambda found: b"" if found[0].lstrip().startswith(b"//") and b"NOLINT" not in found[0]
                     else found[0], text)
    return re.sub(rb"\n\s*\n", b"\n", code)


@functools.cache
def digest_of_file(path):
    return hashlib.sha256(without_comments(path.read_bytes())).hexdigest()


def key_of(unit, read, common):
    digest = hashlib.sha256(common)
    for text in [unit["command"], *(f"{path} {digest_of_file(path)}" for path in read)]:
        digest.update(text.replace(str(ROOT), ".").encode() + b"\n")
    return digest.hexdigest()


def versions_of_headers():
    """Of the installed packages that bring headers: not of those that others only name, which come and go
    with any package, nor of clang's own runtime, which only the fuzzers need."""
    said = subprocess.run(["dpkg-query", "-W", "-f=${db:Status-Abbrev}${Package} ${Version}\\n", "*-dev"],
                          check=True, capture_output=True).stdout
    return b"".join(line for line in said.splitlines(True)
                    if line.startswith(b"ii") and b" libclang-rt-" not in line)


@functools.cache
def settings_of(folder):
    """The nearest folder's settings take the place of those above."""
    return next(path for path in (parent / ".clang-tidy" for parent in [folder, *folder.parents])
                if path.exists())


def flags_of(unit):
    """What its compiler is told, but for the compiler, the file and the output."""
    words = shlex.split(unit["command"])[1:]
    words = words[1:] if words[0].endswith(("g++", "c++")) else words  # of `ccache g++`
    kept, skip = [], False
    for word in words:
        if not skip and word not in ("-c", "-o", unit["file"]):
            kept.append(word)
        skip = not skip and word == "-o"
    return tuple(kept)


def check(command):
    """What a command says that fails; None where it does not."""
    result = subprocess.run(command, capture_output=True, text=True)
    # Of stderr only errors matter: the rest counts warnings in system headers.
    return None if result.returncode == 0 else result.stdout.strip() or result.stderr


def tidy(source, flags, settings, *options):
    return check(["clang-tidy", *FLAGS, f"--config-file={settings}", *options, source, "--",
                  *flags])


def check_as_one(sources, check_file):
    """What `check_file` says of one file that includes them."""
    with tempfile.NamedTemporaryFile("w", suffix=".cpp") as file:
        file.writelines(f'#include "{source}"\n' for source in sources)
        file.flush()
        return check_file(file.name)


def tidy_as_one(sources, flags, settings):
    return check_as_one(sources, lambda name: tidy(name, flags, settings,
                                                   "--checks=-bugprone-suspicious-include"))


def compile_only(source, flags):
    return check(["clang++", "-fsyntax-only", "-w", *flags, source])


def parts_of(sources, flags):
    """The sources in their order, in parts that compile as one."""
    if len(sources) == 1 or check_as_one(sources, lambda name: compile_only(name, flags)) is None:
        return [sources]
    middle = len(sources) // 2
    return parts_of(sources[:middle], flags) + parts_of(sources[middle:], flags)


def reports(batch):
    """A report, None where it is clean, for each of a batch's sources."""
    (flags, settings), units = batch
    found = []
    for part in parts_of([source for source, _ in units], flags):
        is_clean = len(part) > 1 and tidy_as_one(part, flags, settings) is None
        found += [compile_only(source, flags) if is_clean else tidy(source, flags, settings)
                  for source in part]
    return found


def main():
    build, cache = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])
    cache.mkdir(parents=True, exist_ok=True)
    planted = ROOT / "tests/lint/planted.cpp"
    if tidy_as_one([planted], ["-std=c++20"], ROOT / ".clang-tidy") is None:
        sys.exit(f"tidy: clang-tidy does not see the fault in {planted}: what else does it miss?")
    version = subprocess.run(["clang-tidy", "--version"], check=True, capture_output=True).stdout
    headers = versions_of_headers()
    changed = reach.changed_files() if "DTRAIN_LINT_CHANGED" in os.environ else None
    alike = {}
    units = json.loads((build / "compile_commands.json").read_text())
    for unit in sorted(units, key=lambda unit: unit["file"]):
        source = pathlib.Path(unit["file"])
        if build in source.parents or source.suffix == ".cu":  # generated; written for nvcc
            continue
        settings = settings_of(source.parent)
        read = files_read(source)
        if changed is not None and not any(os.path.relpath(path, ROOT) in changed
                                           for path in [settings, *read]):
            continue
        key = key_of(unit, read, version + headers + settings.read_bytes())
        if not (cache / key).exists():
            alike.setdefault((flags_of(unit), settings), []).append((source, key))
    batches = [(kind, units[i:i + BATCH]) for kind, units in alike.items()
               for i in range(0, len(units), BATCH)]

    failed = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for (_, units), found in zip(batches, pool.map(reports, batches)):
            for (_, key), report in zip(units, found):
                if report is None:
                    (cache / key).touch()
                else:
                    failed += 1
                    print(report, flush=True)
    if failed:
        sys.exit(f"tidy: {failed} of {sum(map(len, alike.values()))} files need work")


if __name__ == "__main__":
    main()
