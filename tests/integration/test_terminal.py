"""What a person at a terminal sees."""
import re

import pexpect
import pytest

ESCAPE = "\x1b"
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@pytest.fixture
def terminal(home):
    """Starts a command under a terminal of a given width."""
    started = []

    def start(*words, width=80, env=None, program=None):
        child = pexpect.spawn(program or home.dtrain_path, [str(word) for word in words],
                              env={**home.env, **(env or {})}, cwd=str(home.folder),
                              dimensions=(24, width), encoding="utf-8",
                              timeout=20 * home.build.slowness)
        started.append(child)
        return child
    yield start
    for child in started:
        child.close(force=True)


def screen(child):
    """Everything the command wrote until it ended."""
    child.expect(pexpect.EOF)
    child.close()
    return child.before


def test_a_terminal_has_colours_and_a_pipe_has_none(home, terminal):
    home.submit("c", "sh", "-c", "echo hello", flags=["--workers=2"])
    home.dtrain("wait", "c")
    assert ESCAPE in screen(terminal("logs", "c"))
    assert ESCAPE in screen(terminal("get", "c"))
    for env in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        assert ESCAPE not in screen(terminal("get", "c", env=env))
        assert ESCAPE not in screen(terminal("logs", "c", env=env))


def test_each_instance_has_its_own_colour(home, terminal):
    home.submit("c", "sh", "-c", "echo hello", flags=["--workers=2"])
    home.dtrain("wait", "c")
    text = screen(terminal("logs", "c"))
    colours = dict(re.findall(r"\x1b\[([0-9;]+)m[^\x1b]*(worker-\d)", text))
    assert len(colours) == 2, text


@pytest.mark.parametrize("words", [["--help"], ["submit", "--help"], ["list"], ["get", "wide-one"]],
                         ids=" ".join)
def test_nothing_is_wider_than_the_terminal(home, terminal, words):
    home.submit("wide-one", "true")
    home.dtrain("wait", "wide-one")
    text = CONTROL.sub("", screen(terminal(*words, width=80)))
    assert max(map(len, text.splitlines())) <= 80


def test_ctrl_c_in_logs_detaches_and_leaves_the_job(home, terminal):
    home.submit("on", "sh", "-c", "while :; do echo tick; sleep 0.1; done")
    child = terminal("logs", "on", "-f")
    child.expect("tick")
    child.sendintr()
    rest = screen(child)
    assert child.exitstatus == 130
    assert "on" in rest and "Traceback" not in rest
    assert home.status("on") == "RUNNING"
    home.dtrain("delete", "on")


def test_watch_shows_each_change_until_the_end(home, terminal):
    home.submit("w", "sh", "-c", "until [ -e go ]; do sleep 0.05; done")
    child = terminal("get", "w", "-w")
    child.expect("RUNNING")
    (home.folder / "go").touch()
    child.expect("SUCCEEDED")
    screen(child)
    assert child.exitstatus == 0


def test_the_shells_lines_are_left_as_they_were(home, terminal):
    """No command leaves the terminal in another mode, colour or without its cursor."""
    home.submit("t", "echo", "x")
    home.dtrain("wait", "t")
    for words in (["get", "t"], ["logs", "t"], ["get", "t", "-w"]):
        text = screen(terminal(*words))
        styles = re.findall(r"\x1b\[([0-9;]*)m", text)
        assert not styles or styles[-1] in ("0", ""), text
        assert "\x1b[?25l" not in text or text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")
