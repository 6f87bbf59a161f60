#!/usr/bin/env python3
"""Finds constants of one source that hide another of a header from the sources compiled with it.

Up to 12 files of a target are compiled as one (CMAKE_UNITY_BUILD). There a constant in the unnamed
namespace of `dtrain::ssh` stands in front of one of the same name in `dtrain` for all the files that
come behind it: they compile, with another value than they mean.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
NAMESPACE = re.compile(r"^(?:inline )?namespace(?: ([\w:]+))? \{")
END = re.compile(r"^\} // namespace")
CONSTANT = re.compile(r"^(?:(?:inline|static|extern) )*const(?:expr|init)? [^=;(]*?\b(k_\w+)(?:\[[^\]]*\])*\s*(?:[{=;]|$)")


def constants_of(path):
    """(name, the namespaces round it, unnamed ones as "", line) of each constant outside of functions."""
    scope = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if opened := NAMESPACE.match(line):
            scope.append(opened[1] or "")
        elif END.match(line):
            scope.pop()
        elif found := CONSTANT.match(line):
            yield found[1], tuple(scope), number


def named(scope):
    return tuple(part for name in scope for part in name.split("::") if part)


def main():
    sources = [path for folder in ("cli", "submit", "backends", "trainer")
               for path in sorted((ROOT / folder).rglob("*")) if path.suffix in (".cpp", ".h")]
    declared = {}
    for path in sources:
        if path.suffix == ".h":
            for name, scope, _ in constants_of(path):
                declared.setdefault(name, []).append((named(scope), path))
    bad = [f"{path.relative_to(ROOT)}:{number}: {name} hides that of {header.relative_to(ROOT)} from "
           "the files that are compiled as one with this; give it another name"
           for path in sources if path.suffix == ".cpp"
           for name, scope, number in constants_of(path) if "" in scope
           for outer, header in declared.get(name, []) if named(scope)[:len(outer)] == outer]
    print("\n".join(bad), end="\n" if bad else "")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
