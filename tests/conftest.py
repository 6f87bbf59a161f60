"""Fixtures that all tests of the real programs share."""
import os
import pathlib
import shutil
import sys
import tempfile

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
sys.dont_write_bytecode = True

from harness import Build, Home  # noqa: E402

pytest_plugins = ["engines.kubernetes.fixtures"]


def pytest_addoption(parser):
    parser.addoption("--build", default="build/release",
                     help="the build folder whose programs are driven")
    parser.addoption("--engine", default="local",
                     help="the backend that the conformance suite runs on")


@pytest.fixture(scope="session")
def build(request):
    return Build.at(request.config.getoption("--build"))


@pytest.fixture
def home(build):
    """A home folder of the test's own. Fails the test if anything is left running or lying about
    at its end, the tests that end in the middle of a job included."""
    folder = tempfile.mkdtemp(prefix="dtrain-test-")
    try:
        home = Home(folder, build)
        yield home
        left = home.leftovers()
        assert not left, "left behind:\n" + "\n".join(left)
    finally:
        for root, folders, _ in os.walk(folder):  # tests take permissions away
            for name in folders:
                os.chmod(os.path.join(root, name), 0o700)
        shutil.rmtree(folder)
