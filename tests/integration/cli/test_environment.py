"""The variables that the programs read, and the page that says so."""
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[3]


def sources():
    for room in ("cli", "submit", "backends", "trainer"):
        for path in (ROOT / room).rglob("*"):
            if path.suffix in (".cpp", ".h", ".cu"):
                yield path.relative_to(ROOT), path.read_text()


def test_a_variable_of_ours_is_read_by_its_line_of_the_table_alone():
    found = {(str(path), name) for path, text in sources()
             for name in re.findall(r'getenv\("(DTRAIN_[A-Z_]+)"\)', text)}
    assert not found, "read it as environment::k_NAME.value(), of submit/options/environment.h"


def test_the_page_names_every_variable_that_a_flag_or_the_table_has(build):
    page = build.folder / "man/man1/dtrain-environment.7"
    if not page.exists():
        pytest.skip("installed programs have their pages elsewhere")
    listed = set(re.findall(r"^\.It Ev (.*)$", page.read_text(), re.M))
    listed = {name for line in listed for name in line.split(" , Ev ")}
    read = {name for _, text in sources() for name in re.findall(
        r'(?:\.env = |EnvironmentVariable k_\w+ = \{\s*)"([A-Z_]+)"', text)}
    assert {"DTRAIN_SSH_HOSTS", "DTRAIN_TRAINER", "XDG_STATE_HOME"} <= read
    assert read <= listed, read - listed
