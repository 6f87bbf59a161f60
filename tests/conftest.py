"""Fixtures that all tests of the real programs share."""
import os
import pathlib
import shutil
import signal
import sys
import tempfile

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
sys.dont_write_bytecode = True

import harness  # noqa: E402
from harness import Build, Home  # noqa: E402

# A shell starts what is to run in the background with Ctrl-C ignored, which programs inherit.
signal.signal(signal.SIGINT, signal.default_int_handler)

pytest_plugins = ["gate_plugin",
                  *(f"engines.{path.parent.name}.fixtures" for path in
                    sorted(pathlib.Path(__file__).parent.glob("engines/*/fixtures.py")))]


def pytest_addoption(parser):
    parser.addoption("--build", default="build/release",
                     help="the build folder whose programs are driven")
    parser.addoption("--engine", help="the backend that the conformance suite runs on")


@pytest.fixture(scope="session")
def build(request):
    build = Build.at(request.config.getoption("--build"))
    harness.slowness = build.slowness
    return build


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
                if not os.path.islink(os.path.join(root, name)):
                    os.chmod(os.path.join(root, name), 0o700)
        shutil.rmtree(folder)


@pytest.fixture(params=sorted(path for path in pathlib.Path(__file__).parent.glob("upgrade/*") if path.is_dir()),
                ids=lambda path: path.name)
def earlier_release(request):
    """What a release's programs left of their jobs (tests/upgrade/make)."""
    return request.param


@pytest.fixture
def fake_deepspeed(home):
    """A deepspeed that says how it was called, and starts a process a slot as the real one does."""
    home.script("deepspeed", """echo "args $*"
        for word; do case $word in --hostfile=*) file=${word#*=} ;; esac; done
        cat "$file"
        ssh -o PasswordAuthentication=no localhost hostname >/dev/null && echo ssh works
        ssh elsewhere true || echo no other host""")
    return {"PATH": f"{home.folder}:{os.environ['PATH']}", "DTRAIN_LOCAL_GPUS": "0"}
