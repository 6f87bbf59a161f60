"""The backends that the suite runs on, chosen by --engine; by default those that need this machine
alone.

A backend's fixture, of its name, brings its engine up (or skips nothing and fails: an engine that
the tests were asked to use must be there) and gives an Engine. One that needs more than this machine
has its fixture in tests/engines/NAME/fixtures.py.
"""
import pytest

from harness import Engine


@pytest.fixture
def local(home):
    return Engine(home, ("--backend=local",))


@pytest.fixture
def toy(home):
    """That of unit/toy_engine, which nothing but its own folder and a registry knows of."""
    home.program = "dtrain-toy"
    return Engine(home, ("--backend=toy",))


def pytest_generate_tests(metafunc):
    if "engine" in metafunc.fixturenames:
        chosen = metafunc.config.getoption("--engine")
        metafunc.parametrize("engine", [chosen] if chosen else ["local", "toy"], indirect=True)


@pytest.fixture
def engine(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
def gang_flags(engine):
    with engine.whole_restarts() as flags:
        yield flags or ()
