"""The agent that looks after a host's ranks (templates/ssh/agent.sh), without ssh: each shell that a
host may have for sh runs it over pipes."""
import os
import pathlib
import secrets
import select
import shutil
import signal
import subprocess
import tempfile
import time

import pytest

from harness import CAN_MOUNT, alive, until

TEMPLATES = pathlib.Path(__file__).parents[3] / "templates/ssh"
SHELLS = {"dash": ["dash"], "bash": ["bash"], "busybox": ["busybox", "sh"]}


class Agent:
    def __init__(self, home, shell, host_timeout=60, grace=1, over=(), under=()):
        """`over`: what runs a line for sh elsewhere; `under`: what runs a command here."""
        self.word = secrets.token_hex(8)
        text = (f"agent={self.word}\njob=ab12\nnumber=0\nchosen=\nwithout=\nhost_timeout={host_timeout}\ngrace={grace}\n"
                + (TEMPLATES / "facts.sh").read_text() + (TEMPLATES / "agent.sh").read_text())
        load = (f"script=$(dd bs={len(text)} count=1 iflag=fullblock 2>/dev/null); "
                'eval "$script"') if over else text
        command = [*over, f"exec {' '.join(shell)} -c '{load}'"] if over else [*under, *shell, "-c", load]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        env=home.env, cwd=home.folder, start_new_session=True)
        if over:
            self.process.stdin.write(text.encode())
        self.unread = bytearray()
        self.greeted = False
        self.is_over = False
        self.frames = []  # (kind, key, bytes)

    def say(self, line, more=b""):
        self.process.stdin.write(line.encode() + b"\n" + more)
        self.process.stdin.flush()

    def start(self, key, script, word="start"):
        """`script`: what sh runs as the rank."""
        quoted = script.replace("'", "'\\''")
        text = f"begin() {{ exec setsid sh -c '{quoted}'; }}".encode()
        self.say(f"{word} {key} {len(text)}", text)

    def hear(self):
        """Reads what comes until there is a pause, or a lot."""
        stdout = self.process.stdout.fileno()
        for _ in range(1000):
            if self.is_over or not select.select([stdout], [], [], 0.05)[0]:
                break
            block = os.read(stdout, 1 << 20)
            self.unread += block
            self.is_over = block == b""
        if not self.greeted:
            greeting = f"\ndtrain-agent {self.word}\n".encode()
            self.greeted = greeting in self.unread
            if self.greeted:
                del self.unread[:self.unread.index(greeting) + len(greeting)]
        at = 0
        while self.greeted and (end := self.unread.find(b"\n", at)) >= 0:
            kind, key, count = self.unread[at:end].split(b" ")
            if len(self.unread) < end + 1 + int(count):
                break
            at = end + 1 + int(count)
            self.frames.append((kind.decode(), int(key), bytes(self.unread[end + 1:at])))
        del self.unread[:at]
        return self

    def printed(self, key, kind="out"):
        return b"".join(text for what, whose, text in self.hear().frames
                        if (what, whose) == (kind, key))

    def code(self, key):
        """Of one that has ended; None: it has not."""
        for kind, whose, text in self.hear().frames:
            if (kind, whose) == ("ended", key):
                return int(text)
        return None

    def await_code(self, key):
        return int(until(lambda: str(self.code(key) if self.code(key) is not None else ""),
                         f"rank {key} has ended"))

    def await_lines(self, key, count):
        until(lambda: self.printed(key).count(b"\n") >= count, f"rank {key} prints {count} lines")
        return self.printed(key).decode().split("\n")[:-1]

    def end(self):
        self.process.stdin.close()
        until(lambda: self.hear().is_over, "the agent closes its connection")
        return self.process.wait(60)


@pytest.fixture(params=SHELLS)
def start(request, home):
    agents = []

    def make(**settings):
        agents.append(Agent(home, SHELLS[request.param], **settings))
        return agents[-1]

    yield make
    for agent in agents:
        if not agent.process.stdin.closed:
            agent.end()
        agent.process.stdout.close()


def test_what_a_rank_prints_and_its_exit_code_come_over_the_connection(start):
    agent = start()
    for key, code in (1, 0), (2, 165), (3, 255), (4, 3):
        agent.start(key, f"echo out {key}; echo err {key} >&2; exit {code}")
    agent.start(5, "kill -KILL $$")
    for key, code in (1, 0), (2, 165), (3, 255), (4, 3):
        assert agent.await_code(key) == code
        assert agent.printed(key) == f"out {key}\n".encode()
        assert agent.printed(key, "err") == f"err {key}\n".encode()
    assert agent.await_code(5) == 128 + signal.SIGKILL
    assert agent.printed(5, "err") == b""  # No shell's "Killed".
    assert agent.end() == 0


def test_binary_output_comes_byte_for_byte_before_the_end(start, home):
    data = os.urandom(10 << 20)
    (home.folder / "binary").write_bytes(data)
    agent = start()
    agent.start(1, "head -c 1048576 binary >&2 & cat binary; wait; printf 'no end of line'")
    assert agent.await_code(1) == 0
    assert agent.printed(1) == data + b"no end of line"
    assert agent.printed(1, "err") == data[:1 << 20]
    assert agent.frames[-1][0] == "ended"


def test_a_signal_reaches_the_rank_and_all_that_it_started(start):
    agent = start()
    agent.start(1, "trap 'echo told; exit 7' TERM; setsid sleep 600 & echo $!; "
                   "while :; do sleep 0.1; done")
    agent.start(2, "echo $$; exec sleep 600")
    daemon, = agent.await_lines(1, 1)
    other, = agent.await_lines(2, 1)
    agent.say("signal 1 TERM")
    assert agent.await_code(1) == 7
    assert agent.await_lines(1, 2)[1] == "told" and not alive(daemon)
    assert alive(other) and agent.code(2) is None
    agent.say("signal 2 INT")  # It isn't ignored, as by what a shell has in the background.
    assert agent.await_code(2) == 128 + signal.SIGINT


def test_a_signal_to_all_reaches_every_rank(start):
    agent = start()
    for key in range(1, 4):
        agent.start(key, "echo here; exec sleep 600")
        agent.await_lines(key, 1)
    agent.say("signal all TERM")
    assert [agent.await_code(key) for key in range(1, 4)] == [128 + signal.SIGTERM] * 3


def test_a_process_whose_environment_is_cleared_does_not_outlive_its_rank(start, home):
    agent = start()
    agent.start(1, "env -i sleep 600 >/dev/null 2>&1 & echo $!; env -i setsid sleep 600 & echo $!; "
                   "sleep 600 & echo $!; until [ -e go ]; do sleep 0.1; done; exit 4")
    left = agent.await_lines(1, 3)
    assert all(alive(pid) for pid in left)
    (home.folder / "go").touch()
    assert agent.await_code(1) == 4
    assert not any(alive(pid) for pid in left)


def test_ranks_that_end_together_have_their_leftovers_ended(start, home):
    agent = start()
    keys = range(1, 9)
    for key in keys:
        agent.start(key, "setsid sleep 600 & echo $!; until [ -e go ]; do sleep 0.1; done; exit 4")
    left = [pid for key in keys for pid in agent.await_lines(key, 1)]
    (home.folder / "go").touch()
    assert [agent.await_code(key) for key in keys] == [4] * len(keys)
    assert len(left) == len(keys) and not any(alive(pid) for pid in left)


@pytest.mark.parametrize("start", ["dash", "bash"], indirect=True)  # busybox has an awk of its own.
def test_ranks_that_end_together_are_looked_for_together(start, home, monkeypatch):
    """All processes of a host are looked through for the first, and once for all the others."""
    tools = home.folder / "tools"
    tools.mkdir()
    (tools / "awk").write_text(f"#!/bin/sh\necho >>{home.folder}/looks\n"
                               f"until [ -e {home.folder}/all-ended ]; do sleep 0.05; done\n"
                               f"exec {shutil.which('awk')} \"$@\"\n")
    (tools / "awk").chmod(0o755)
    monkeypatch.setitem(home.env, "PATH", f"{tools}:{home.env['PATH']}")
    agent = start()
    keys = range(1, 9)
    for key in keys:
        agent.start(key, "until [ -e go ]; do sleep 0.1; done")
    (home.folder / "go").touch()
    until(lambda: len(list(home.folder.rglob(f"ended.{agent.word}.*"))) == len(keys), "all have ended")
    (home.folder / "all-ended").touch()
    assert [agent.await_code(key) for key in keys] == [0] * len(keys)
    assert len((home.folder / "looks").read_text()) <= 2


def test_eight_ranks_of_an_agent_are_kept_apart(start):
    agent = start()
    keys = range(11, 19)
    for key in keys:
        agent.start(key, f"i=0; while [ $i -lt 200 ]; do echo {key} $i; i=$((i + 1)); done; "
                         f"exit {key}")
    for key in keys:
        assert agent.await_code(key) == key
        assert agent.printed(key).decode().split("\n")[:-1] == [f"{key} {i}" for i in range(200)]


def test_what_is_asked_beside_ranks_is_answered_while_they_run(start):
    agent = start()
    agent.start(1, "echo here; exec sleep 600")
    agent.await_lines(1, 1)
    agent.start(2, "until [ -e answered ]; do sleep 0.1; done; echo slow", word="run")
    agent.start(3, "echo quick; touch answered", word="run")
    agent.say("heartbeat 0")
    until(lambda: ("heartbeat", 0, b"") in agent.hear().frames, "the agent answers")
    assert agent.await_code(3) == 0 and agent.printed(3) == b"quick\n"
    assert agent.await_code(2) == 0 and agent.printed(2) == b"slow\n"
    assert agent.code(1) is None
    agent.start(4, "exit 5")  # And one started anew.
    assert agent.await_code(4) == 5 and agent.code(1) is None


def test_a_file_is_taken_in_blocks_and_each_is_answered(start):
    data = os.urandom(150_000)
    agent = start()
    for at in range(0, len(data), 65536):
        block = data[at:at + 65536]
        agent.say(f"put 0 {len(block)}", block)
    until(lambda: agent.hear().frames.count(("heartbeat", 0, b"")) == 3, "the agent answers")
    agent.start(1, f"cat $XDG_STATE_HOME/dtrain/hosts/ab12/0/upload.{agent.word}", word="run")
    assert agent.await_code(1) == 0 and agent.printed(1) == data


def test_a_connection_that_is_closed_ends_the_ranks_and_the_agent(start, home):
    agent = start(grace=1)
    agent.start(1, "trap 'echo asked; exit 3' TERM; echo here; while :; do sleep 0.1; done")
    agent.start(2, "trap '' TERM; echo here; while :; do sleep 0.1; done")
    for key in 1, 2:
        agent.await_lines(key, 1)
    text = b"h1 slots=1\nh2 slots=2"
    agent.say(f"hosts 0 {len(text)}", text)
    agent.start(4, "cat $XDG_STATE_HOME/dtrain/hosts/*/*/hostfile; "
                   "touch $XDG_STATE_HOME/dtrain/hosts/ab12/0/written", word="run")
    assert agent.await_code(4) == 0
    assert agent.end() == 0
    assert (agent.code(1), agent.code(2)) == (3, 128 + signal.SIGKILL)
    assert agent.printed(1) == b"here\nasked\n"
    assert agent.printed(4) == text + b"\n"
    folder = home.state / "dtrain/hosts/ab12/0"  # Of which what the job wrote stays.
    assert folder.stat().st_mode & 0o777 == 0o700
    assert [path.name for path in folder.iterdir()] == ["written"]
    empty = start()
    empty.end()
    assert folder.exists()


def claim(agent, key, count):
    """What it is given, or what the host lacks."""
    seen = len(agent.hear().frames)
    agent.say(f"claim {key} {count}")
    until(lambda: len(agent.hear().frames) > seen, "the agent answers")
    return agent.frames[seen][2].decode()


def test_gpus_are_given_to_one_rank_at_a_time(start, home):
    home.env["DTRAIN_LOCAL_GPUS"] = "4"
    agent, other = start(), start()
    assert [claim(agent, key, count) for key, count in ((1, 2), (2, 1))] == ["0,1", "2"]
    assert claim(other, 6, "1 3,GPU-b") == "lacks 1 free GPUs: 0 of its 4 are free"
    assert claim(other, 1, 2) == "lacks 2 free GPUs: 1 of its 4 are free"
    assert claim(other, 2, 1) == "3"
    agent.say("free 1")
    agent.say("heartbeat 0")
    until(lambda: ("heartbeat", 0, b"") in agent.hear().frames, "the agent has heard it")
    assert claim(other, 3, 2) == "0,1"
    agent.start(2, "echo $$; exec sleep 600")
    rank, = agent.await_lines(2, 1)
    os.killpg(agent.process.pid, signal.SIGKILL)  # Nobody is left to look after the rank.
    agent.process.wait()
    agent.process.stdin.close()
    assert alive(rank) and claim(other, 4, 1) == "lacks 1 free GPUs: 0 of its 4 are free"
    os.kill(int(rank), signal.SIGKILL)
    until(lambda: not alive(rank), "the rank has ended")
    assert claim(other, 5, 1) == "2"
    assert other.end() == 0
    last = start()
    assert claim(last, 1, 4) == "0,1,2,3"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_a_gpu_of_another_users_rank_is_not_free_and_it_is_said_whose(start, home):
    words = [home.dtrain_path, "submit", "-b", "local", "--gpus=4", "--dry-run", "--", "true"]
    with tempfile.TemporaryDirectory() as everybodys:
        os.chmod(everybodys, 0o1777)
        home.env.update(DTRAIN_LOCAL_GPUS="4", DTRAIN_GPU_CLAIMS=f"{everybodys}/gpus")
        agent = start()
        assert claim(agent, 1, 3) == "0,1,2"
        other = start(under=["env", f"XDG_STATE_HOME={everybodys}/state",
                             "setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"])
        assert claim(other, 1, 2) == "lacks 2 free GPUs: 1 of its 4 are free; others are of jobs of root"
        assert claim(other, 2, 1) == "3"
        assert claim(agent, 2, 1) == "lacks 1 free GPUs: 0 of its 4 are free; others are of jobs of nobody"
        local = home.run(words).err
        assert "4 of 4 GPUs are shared with other jobs: see dtrain list; nobody has some, too" in local
        assert other.end() == 0
        assert claim(agent, 3, 1) == "3"


@pytest.mark.skipif(not CAN_MOUNT, reason="the kernel lets nobody mount here")
@pytest.mark.parametrize("mode, folder", [(0o1777, "lock"), (0o755, "var-tmp")])
def test_all_that_a_machine_runs_records_its_gpus_in_one_folder(start, home, mode, folder):
    """Also where nobody but root can write in /run/lock."""
    for each in ("lock", "var-tmp"):
        (home.folder / each).mkdir()
    (home.folder / "lock").chmod(mode)
    under = ["unshare", "-m", "sh", "-c", 'mount --bind "$HOME/lock" /run/lock && '
             'mount --bind "$HOME/var-tmp" /var/tmp && umask 077 && exec "$@"', "sh"]
    del home.env["DTRAIN_GPU_CLAIMS"]
    home.env["DTRAIN_LOCAL_GPUS"] = "1"
    agent = start(under=under)
    assert claim(agent, 1, 1) == "0"
    claims = home.folder / folder / "dtrain-gpus"
    assert claims.stat().st_mode & 0o7777 == 0o1777
    assert (claims / "lock").stat().st_mode & 0o777 == 0o644
    words = [home.dtrain_path, "submit", "-b", "local", "--gpus=1", "--dry-run", "--", "true"]
    assert "1 of 1 GPUs are shared with other jobs" in home.run([*under, *words]).err


@pytest.mark.parametrize("said, devices", [
    ({"CUDA_VISIBLE_DEVICES": "5, GPU-8a9b,3,none,4"}, "5,GPU-8a9b,3"),
    ({"CUDA_VISIBLE_DEVICES": "MIG-a,MIG-GPU-b/1/0"}, "MIG-a,MIG-GPU-b/1/0"),
    ({"CUDA_VISIBLE_DEVICES": "7,5,3", "DTRAIN_LOCAL_GPUS": "2"}, "7,5"),
    ({"CUDA_VISIBLE_DEVICES": "-1"}, ""),
])
def test_a_host_gives_out_the_gpus_that_a_login_is_shown(start, home, said, devices):
    home.env.update(said)
    agent = start()
    count = len(devices.split(",")) if devices else 1
    agent.say(f"claim 1 {count}")
    until(lambda: agent.hear().frames, "the agent answers")
    assert agent.frames[0] == (("gpus", 1, devices.encode()) if devices else
                               ("lacks", 1, b"lacks 1 free GPUs: 0 of its 0 are free"))


@pytest.mark.skipif(not CAN_MOUNT, reason="the kernel lets nobody mount here")
def test_a_gpu_is_one_whether_a_job_names_it_by_its_index_or_its_uuid(start, home):
    with_gpus = ("mount -t tmpfs gpus /proc/driver && cd /proc/driver && "
                 "mkdir -p nvidia/gpus/0000:9a:00.0 nvidia/gpus/0000:1b:00.0 && "
                 "printf 'Model: \\t X\\nGPU UUID: \\t GPU-aa-1\\n' >nvidia/gpus/0000:1b:00.0/information && "
                 "printf 'Model: \\t X\\nGPU UUID: \\t GPU-bb-2\\n' >nvidia/gpus/0000:9a:00.0/information && "
                 'cd "$HOME" && exec "$@"')
    under = ["unshare", "-m", "sh", "-c", with_gpus, "sh"]
    agent = start(under=under)
    agent.say("claim 1 1")
    until(lambda: agent.hear().frames, "the agent answers")
    assert agent.frames[0] == ("gpus", 1, b"0")
    home.env["CUDA_VISIBLE_DEVICES"] = "GPU-aa,GPU-bb-2"
    other = start(under=under)
    other.say("claim 1 2")
    other.say("claim 1 1")
    until(lambda: len(other.hear().frames) == 2, "the agent answers")
    assert other.frames[0] == ("lacks", 1, b"lacks 2 free GPUs: 1 of its 2 are free")
    assert other.frames[1] == ("gpus", 1, b"GPU-bb-2")
    home.env["CUDA_VISIBLE_DEVICES"] = "1"
    words = [home.dtrain_path, "submit", "-b", "local", "--gpus=1", "--", "true"]
    local = subprocess.run([*under, *words], env=home.env, capture_output=True, text=True)
    assert "1 of 1 GPUs are shared with other jobs" in local.stderr


def test_a_registry_that_cannot_be_written_is_said_and_stops_no_rank(start, home):
    home.env["DTRAIN_LOCAL_GPUS"] = "4"
    pathlib.Path(home.env["DTRAIN_GPU_CLAIMS"]).touch()
    agent = start()
    agent.start(1, "echo here; exec sleep 600")
    agent.await_lines(1, 1)
    agent.say("claim 2 1")
    until(lambda: agent.hear().frames[-1][:2] == ("lacks", 2), "the agent answers")
    agent.start(3, "exit 3")
    assert agent.await_code(3) == 3 and agent.code(1) is None


def test_an_agent_that_nobody_asks_after_ends_its_ranks(start):
    agent = start(host_timeout=4, grace=1)
    agent.start(1, "echo $$; trap '' TERM; while :; do sleep 0.1; done")
    rank, = agent.await_lines(1, 1)
    for _ in range(12):  # Longer than it would wait.
        agent.say("heartbeat 0")
        time.sleep(1)
    assert alive(rank) and agent.process.poll() is None
    until(lambda: not alive(rank), "the rank has ended")
    until(lambda: agent.process.poll() is not None, "the agent has ended")
    agent.process.stdin.close()


def test_an_agent_that_ends_by_itself_leaves_no_folder_though_a_rank_is_not_through_with_its_end(
        start, home, monkeypatch):
    tools = home.folder / "tools"
    tools.mkdir()
    (tools / "mv").write_text(f"#!/bin/sh\necho >>{home.folder}/moves\nsleep 20\nexec {shutil.which('mv')} \"$@\"\n")
    (tools / "mv").chmod(0o755)
    monkeypatch.setitem(home.env, "PATH", f"{tools}:{home.env['PATH']}")
    agent = start(host_timeout=4, grace=1)
    agent.start(1, "true")
    # Busybox has its own mv.
    until(lambda: (home.folder / "moves").exists() or agent.code(1) == 0, "the rank has ended")
    until(lambda: agent.process.poll() is not None, "the agent has ended")
    agent.process.stdin.close()
    assert not list(home.folder.rglob("hosts/*"))


def test_a_connection_that_takes_nothing_any_more_ends_the_ranks(start):
    """As one is that was cut while a rank printed: what is written to it waits for ever."""
    agent = start(host_timeout=4, grace=1)
    agent.start(1, "echo $$; yes")
    until(lambda: agent.hear().printed(1), "the rank prints")
    rank = agent.printed(1).split(b"\n")[0].decode()
    until(lambda: not alive(rank), "the rank has ended")
    until(lambda: agent.process.poll() is not None, "the agent has ended")
    agent.process.stdin.close()


def test_a_state_folder_that_somebody_else_may_have_made_is_refused(start, home):
    home.state.mkdir()
    (home.folder / "elsewhere").mkdir()
    (home.state / "dtrain").symlink_to(home.folder / "elsewhere")
    agent = start()
    until(lambda: agent.hear().is_over, "the agent has ended")
    (kind, _, text), = agent.frames
    assert kind == "lacks" and str(home.state / "dtrain").encode() in text
    assert agent.process.wait(60) == 1
    assert list((home.folder / "elsewhere").iterdir()) == []
    agent.process.stdin.close()


@pytest.mark.usefixtures("apart")
def test_over_ssh_ranks_outlive_a_link_that_is_cut_for_a_while_and_no_longer(home, ssh_hosts):
    data = os.urandom(1 << 20)
    (home.folder / "binary").write_bytes(data)
    agent = Agent(home, ["sh"], host_timeout=20, grace=1, over=[f"{ssh_hosts.folder}/bin/ssh", "host1"])
    agent.start(1, f"cat {home.folder}/binary")
    assert agent.await_code(1) == 0 and agent.printed(1) == data
    agent.start(2, "while :; do date; sleep 0.2; done")

    def lines():
        agent.say("heartbeat 0")
        return agent.printed(2).count(b"\n")

    until(lines, "the rank prints")
    with ssh_hosts.cut("host1"):
        for _ in range(6):
            lines()
            time.sleep(1)
        assert ssh_hosts.inside("host1") > 0
    before = lines()
    until(lambda: lines() > before + 20, "the rank is heard again")
    assert agent.code(2) is None
    with ssh_hosts.cut("host1"):
        until(lambda: ssh_hosts.inside("host1") == 0, "the rank ends by itself")
    agent.end()
    ssh_hosts.on("host1", "rm -rf ~/.local/state/dtrain")
