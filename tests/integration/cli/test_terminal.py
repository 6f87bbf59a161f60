"""What a person at a terminal sees."""
import os
import re

import pexpect
import pytest

ESCAPE = "\x1b"
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@pytest.fixture
def terminal(home):
    """Starts a command under a terminal of a given width."""
    started = []

    def start(*words, width=80, height=24, env=None, program=None):
        child = pexpect.spawn(program or home.dtrain_path, [str(word) for word in words],
                              env={**home.env, **(env or {})}, cwd=str(home.folder),
                              dimensions=(height, width), encoding="utf-8",
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


def test_a_watched_list_taller_than_the_terminal_shows_its_newest_jobs(home, terminal):
    for name in ("oldest", "older", "old", "newer", "newest"):
        home.submit(name, "true")
        home.dtrain("wait", name)
    child = terminal("list", "-w", height=5)
    child.expect("… and 3 more lines")
    assert "newer" in child.before and "old" not in child.before
    home.dtrain("delete", "newest", "newer", "old")
    child.expect("older .*oldest ")
    child.sendintr()
    screen(child)
    assert child.exitstatus == 130


def test_usage_is_shown_until_ctrl_c(home, terminal):
    home.submit("u", "sleep", "600", flags=["--workers=2"])
    home.running("u")
    only = home.dtrain("top", "job", "u", "-i", "u-worker-1").out
    assert "worker-1" in only and "worker-0" not in only
    for words, shown in ((["job", "u", "-i", "worker-1", "-r"], "u .*worker-1"),
                         (["job", "-r"], "worker-0.*worker-1"), (["node", "-r"], "NAME.*Ready")):
        child = terminal("top", *words, width=120)
        child.expect(shown)
        assert "-i" not in words or "worker-0" not in child.before
        child.sendintr()
        assert "stopped watching" in screen(child)
        assert child.exitstatus == 130
    home.dtrain("delete", "u")


def test_the_shells_lines_are_left_as_they_were(home, terminal):
    """No command leaves the terminal in another mode, colour or without its cursor."""
    home.submit("t", "echo", "x")
    home.dtrain("wait", "t")
    for words in (["get", "t"], ["logs", "t"], ["get", "t", "-w"]):
        text = screen(terminal(*words))
        styles = re.findall(r"\x1b\[([0-9;]*)m", text)
        assert not styles or styles[-1] in ("0", ""), text
        assert "\x1b[?25l" not in text or text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")


@pytest.mark.parametrize("width", [80, 40])
def test_a_submission_ticks_its_steps_off(home, terminal, width):
    text = screen(terminal("submit", "--name=a-job-with-a-long-name", "--workers=2",
                           "--sync-mode=local", "--sync-source=.", "--", "true", width=width))
    plain = CONTROL.sub("", text).splitlines()
    steps = [line for line in plain if line.startswith("✓")]
    assert [line.split()[1] for line in steps] == ["resolve", "upload", "check", "create"], text
    assert "\x1b[32m✓" in text and all(len(line) <= width for line in steps)
    assert home.dtrain("wait", "a-job-with-a-long-name")


def test_steps_have_no_colour_where_none_is_wanted_and_no_tick_without_a_terminal(home, terminal):
    text = screen(terminal("submit", "--name=a", "--", "true", env={"NO_COLOR": "1"}))
    assert "✓ create" in text and ESCAPE not in text
    text = screen(terminal("submit", "--name=b", "--", "true", env={"TERM": "dumb"}))
    assert "job/b submitted" in text and "create" not in text and "✓" not in text
    result = home.dtrain("submit", "--name=c", "--workers=2", "--", "true")
    assert result.out == "job/c submitted\n"
    assert result.err == "Follow it with: dtrain logs -f c\n"
    assert home.dtrain("submit", "--name=d", "-q", "--", "true").err == ""


def test_the_step_that_fails_is_crossed_out(home, terminal):
    text = screen(terminal("submit", "--name=a", "--", "no-such-program"))
    assert "✗" in text and "check" in text and "no-such-program" in text
    assert "✓ create" not in text


def test_an_upload_that_takes_long_has_a_bar_and_ctrl_c_takes_it_back(home, terminal):
    folder = home.folder / "code"
    folder.mkdir()
    for i in range(40):
        os.truncate(os.open(folder / f"big{i}", os.O_CREAT | os.O_WRONLY), 60 << 20)
    child = terminal("submit", "--name=a", "--sync-mode=local", "--sync-source=code", "--", "true",
                     width=60)
    child.expect("━")
    child.sendintr()
    text = screen(child)
    assert child.exitstatus == 130 and "nothing was submitted" in text, text
    assert all(len(line) <= 60 for line in re.split("[\r\n]+", CONTROL.sub("", child.before)))
    assert home.dtrain("list", "-o", "name").out == ""
    assert list((home.state / "dtrain" / "staging").iterdir()) == []
    assert not list((home.folder / "cache").rglob("partial.*"))
