"""What pytest does for the gate (gate.py): it tells which tests run, which failed and why, and runs
those of a second look alone. It writes only where the gate names a folder.

And for whoever runs tests: what a session's fixture brings up (a cluster) is tried three times.
"""
import copy
import faulthandler
import os
import pathlib
import signal
import time

import _pytest.fixtures
import pytest

import gate

FOLDER = os.environ.get(gate.RECORD)
AGAIN = FOLDER is not None and gate.AGAIN in os.environ
WORKER = os.environ.get("PYTEST_XDIST_WORKER", "")

failed_again = set()
not_set_up = set()  # fixtures of the session that failed three times


def pytest_configure():
    if FOLDER:
        file = open(pathlib.Path(FOLDER, "running", f"{WORKER or 'main'}.stacks"), "w")
        faulthandler.register(signal.SIGUSR1, file=file, all_threads=True)


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_runtest_protocol(item):
    if not FOLDER:
        yield
        return
    now = pathlib.Path(FOLDER, "running", f"{WORKER or 'main'}.now")
    now.write_text(f"{os.getpid()} {int(time.time())} {item.nodeid}\n")
    yield
    now.write_text("")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    for item in items:  # Those of clusters and of peers have longer limits of their own.
        longer = (item.nodeid.startswith("engines/") or config.getoption("--engine") or
                  item.get_closest_marker("peer"))
        if longer and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(600))
    if AGAIN:
        chosen = gate.to_look_at(FOLDER, "pytest")
        items[:] = [look for item in items if is_chosen(item.nodeid, chosen)
                    for look in looks_at(item)]


def is_chosen(name, chosen):
    """By its whole name, as a second look has it, or as one of a file's or of a parametrized test's."""
    return any(name == each or name.startswith((f"{each}[", f"{each}::")) for each in chosen)


def looks_at(item):
    """The test as several, so that all it has of its own is set up anew each time."""
    for _ in range(gate.LOOKS):
        look = copy.copy(item)
        look._initrequest()
        yield look


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    if item.nodeid in failed_again:
        pytest.skip("failed again")
    if not_set_up & set(item.fixturenames):
        pytest.skip("what it needs could not be set up")


def first_of(report):
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is None:
        lines = [line.strip() for line in report.longreprtext.splitlines() if line.strip()]
        return next((line for line in lines if line.startswith("E ")), "".join(lines[:1]))
    first, *more = crash.message.splitlines() or [""]
    if more and first.endswith(":"):  # what was left behind
        first += " " + more[0]
    return f"{os.path.relpath(crash.path, gate.ROOT)}:{crash.lineno}: {first}"


def tell(report):
    crash = getattr(report.longrepr, "reprcrash", None)  # without the test's own source
    text = crash.message if crash else report.longreprtext
    text = "\n".join([text[:20000], *(words[-20000:] for _, words in report.sections)])
    gate.tell(FOLDER, by="pytest", test=report.nodeid, when=report.when, first=first_of(report),
              text=text, peer="peer" in getattr(report, "keywords", ()))


def pytest_runtest_logreport(report):
    if not FOLDER or WORKER:  # xdist gives each report to the session that gave the tests out, too.
        return
    if report.failed:
        if AGAIN:
            failed_again.add(report.nodeid)
        tell(report)
    elif AGAIN and report.when == "call" and report.passed:
        gate.tell(FOLDER, by="pytest", test=report.nodeid, passed=True)


def pytest_collectreport(report):
    if FOLDER and not WORKER and report.failed:
        report.when = "collect"
        tell(report)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session, exitstatus):
    if FOLDER and not WORKER:
        if exitstatus == pytest.ExitCode.TESTS_FAILED:
            session.exitstatus = gate.TESTS_FAILED
        elif AGAIN and exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
            session.exitstatus = 0


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(fixturedef, request):
    """No test has begun that needs it: it is set-up, and no test's time."""
    if fixturedef.scope != "session":
        return None
    left = signal.setitimer(signal.ITIMER_REAL, 0)[0]  # pytest-timeout's
    try:
        for pause in (10, 30, None):
            try:
                return _pytest.fixtures.pytest_fixture_setup(fixturedef, request)
            except (Exception, pytest.fail.Exception) as error:
                if pause is None:
                    not_set_up.add(fixturedef.argname)
                    if FOLDER:
                        words = " ".join(str(error).split())[-600:]
                        pathlib.Path(FOLDER, "set_up_failed").write_text(
                            f"{fixturedef.argname}: {words}\n")
                    raise
                print(f"{fixturedef.argname}: {error}; again in {pause} s")
                if FOLDER:
                    pathlib.Path(FOLDER, "set_up_again").touch()
                fixturedef.cached_result = None
                time.sleep(pause)
    finally:
        signal.setitimer(signal.ITIMER_REAL, left)
