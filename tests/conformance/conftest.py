"""The backends that the suite runs on, chosen by --engine. A new one registers a fixture here, and
nothing else.

A backend's fixture brings its engine up (or skips nothing and fails: an engine that the tests were
asked to use must be there) and gives an Engine.
"""
import dataclasses

import pytest

from engines.kubernetes.fixtures import BUSYBOX
from harness import until


@dataclasses.dataclass(frozen=True)
class Engine:
    home: object
    flags: tuple           # what `submit` and the others need to reach it
    submit_flags: tuple = ()  # what `submit` needs beside them

    def submit(self, name, *command, flags=(), **options):
        return self.home.submit(name, *command, flags=(*self.flags, *self.submit_flags, *flags),
                                **options)

    def dtrain(self, verb, *args, **options):
        return self.home.dtrain(verb, *self.flags, *args, **options)

    def get(self, name, *flags):
        return self.dtrain("get", name, *flags, "-o", "json").json()

    def wait(self, name, expect=0):
        return self.dtrain("wait", name, expect=expect)

    def lines(self, name, *flags):
        return self.dtrain("logs", name, *flags).out.splitlines()


@pytest.fixture
def local(home):
    return Engine(home, ("--backend=local",))


@pytest.fixture
def kubernetes(kube, namespaces):
    return Engine(kube, ("--backend=kubernetes",), (BUSYBOX,))


@pytest.fixture
def engine(request):
    return request.getfixturevalue(request.config.getoption("--engine"))


@pytest.fixture
def gang_flags(engine, request):
    """What `submit` needs for a failed rank to take the others along into the next run: on
    Kubernetes JobSet, whose controller runs meanwhile, since a Job replaces that rank alone."""
    if request.config.getoption("--engine") != "kubernetes":
        yield ()
        return
    cluster = request.getfixturevalue("cluster")
    cluster.run("start-jobset")
    try:
        yield ("--api=jobset",)
    finally:
        engine.dtrain("delete", "--all", expect=None)
        until(lambda: not cluster.kubectl("get", "service,pod", "-o", "name", "-l", "dtrain/job"),
              "all is gone", 60)
        cluster.run("stop-jobset")
