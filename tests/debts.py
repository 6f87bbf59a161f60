"""Tests that flaked, until their causes are mended: tests/flakes.tsv, a line a test.

Its columns: kind, test, the days on which it flaked first and last, how often, what it said. Whoever
mends a cause takes the line out, in the same commit, once `./dev stress TEST --count=50` passes.
"""
import datetime

DAYS, LINES = 7, 10  # No line gets older, and there are no more, or `./dev test all` is red.


def read(path):
    """By (kind, test): [first day, last day, count, words]."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    fields = (line.split("\t") for line in lines if line and not line.startswith("#"))
    return {(kind, test): [first, last, int(count), words]
            for kind, test, first, last, count, words in fields}


def add(path, flaked, today=None):
    """Adds what flaked, (kind, test, words) each, to the list at `path`."""
    today = str(today or datetime.date.today())
    debts = read(path)
    for kind, test, words in flaked:
        first, _, count, _ = debts.get((kind, test), [today, today, 0, ""])
        debts[kind, test] = [first, today, count + 1, " ".join(words.split())]
    path.write_text("# kind, test, first day, last day, times, what it said\n" + "".join(
        "\t".join([*key, *map(str, debt)]) + "\n" for key, debt in sorted(debts.items())),
        encoding="utf-8")


def complaints(path, today=None):
    """Why the list makes `./dev test all` red, a line each."""
    today = today or datetime.date.today()
    debts = read(path)
    lines = [f"{path.name}: {test} ({kind}) has flaked since {first}, more than {DAYS} days: mend "
             "its cause" for (kind, test), (first, *_) in sorted(debts.items())
             if (today - datetime.date.fromisoformat(first)).days > DAYS]
    if len(debts) > LINES:
        lines.append(f"{path.name}: {len(debts)} tests flake, more than {LINES}: mend some")
    return lines
