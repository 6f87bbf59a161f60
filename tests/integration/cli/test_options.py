"""The set of flags: each new one is a decision, which the diff of options.txt shows."""
import pathlib
import re
import sys

import pytest

FROZEN = pathlib.Path(__file__).with_name("options.txt")


def flags_of(folder):
    """`dtrain-submit --workers`: of the man pages' lists of options, by name."""
    found = set()
    for page in folder.glob("*.1"):
        for item in re.findall(r"^\.It (Fl .*)$", page.read_text(), re.M):
            for flag in re.findall(r"Fl (\S+)", item):
                found.add(f"{page.stem} -{flag}".replace("\\-", "-"))
    return sorted(found)


def test_no_flag_comes_or_goes_by_accident(build):
    pages = build.folder / "man/man1"
    if not pages.exists():
        pytest.skip("installed programs have their pages elsewhere")
    assert flags_of(pages) == FROZEN.read_text().splitlines(), (
        f"if that is meant: python3 {__file__} {pages}")


if __name__ == "__main__":
    FROZEN.write_text("\n".join(flags_of(pathlib.Path(sys.argv[1]))) + "\n")
