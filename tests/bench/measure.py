"""What every measurement shares: where the programs are, running them, and a row of the table."""
import contextlib
import dataclasses
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent


def peers_folder():
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return pathlib.Path(os.environ.get("DTRAIN_PEERS") or f"{cache}/dtrain/peers")


def peer_program(peer, program):
    """A program of a peer's virtual environment, or None."""
    path = peers_folder() / peer / "bin" / program
    return str(path) if (peers_folder() / peer / ".complete").exists() and path.exists() else None


def on_path(program):
    return shutil.which(program)


@dataclasses.dataclass
class Row:
    """One line of the table: ours, beside a peer's or against a limit."""
    what: str
    unit: str
    ours: float
    peer: str = ""           # "PyTorch DDP, gloo"
    theirs: float = None     # None: not found, or no peer in this row
    more_is_better: bool = False
    target: float = None     # of ratio(), or of ours where there is no peer
    peer_found: bool = True

    def ratio(self):
        """How many times better than the peer; None where there is none."""
        if self.theirs is None or not self.ours or not self.theirs:
            return None
        return self.ours / self.theirs if self.more_is_better else self.theirs / self.ours

    def met(self):
        """True, False, or None where there is nothing to compare."""
        if self.target is None:
            return None
        if self.peer:
            return None if self.ratio() is None else self.ratio() >= self.target
        return self.ours >= self.target if self.more_is_better else self.ours <= self.target


class Bench:
    def __init__(self, build, rounds):
        self.bin = pathlib.Path(build).resolve() / "bin"
        self.rounds = rounds
        self.missing = []    # peers that were not found, in words
        self.flushes_denormals = {}  # peer that trains -> whether it does, as dtrain-trainer does

    def find(self, what, program):
        """`program`, or None with a note of what was not found."""
        if program is None and what not in self.missing:
            self.missing.append(what)
        return program

    def interleaved(self, measurements):
        """Runs each of {name: function} in turn, `rounds` times over; name -> list of results."""
        results = {name: [] for name in measurements}
        for round_number in range(self.rounds):
            for name, function in measurements.items():
                show_progress(f"  round {round_number + 1} of {self.rounds}: {name}")
                results[name].append(function())
        show_progress("")
        return results


def show_progress(text):
    """In place of the one before, on a terminal."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


@contextlib.contextmanager
def own_home():
    """The environment of a dtrain whose jobs are nobody else's."""
    with tempfile.TemporaryDirectory(prefix="dtrain-bench-") as folder:
        yield dict(os.environ, HOME=folder, XDG_STATE_HOME=f"{folder}/state",
                   XDG_CONFIG_HOME=f"{folder}/config", OMP_NUM_THREADS="1")


def run(command, **options):
    """Standard output of a command that must succeed; its error output where it does not."""
    result = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                            **options)
    if result.returncode != 0:
        words = " ".join(str(word) for word in command)
        raise RuntimeError(f"{words}: exit {result.returncode}\n{result.stderr[-2000:]}")
    return result.stdout


def json_lines(text):
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def milliseconds(command, runs, env):
    """Median wall time of a command, by hyperfine without a shell."""
    with tempfile.NamedTemporaryFile(suffix=".json") as report:
        words = " ".join("'" + str(word).replace("'", "'\\''") + "'" for word in command)
        run(["hyperfine", "-N", "--warmup=1", f"--runs={runs}", f"--export-json={report.name}",
             words], env=env)
        return statistics.median(json.load(report)["results"][0]["times"]) * 1000


def sgemm(bench):
    """GFLOP/s of one core now, by name of the shape."""
    program = bench.bin / "bench-sgemm"
    return json_lines(run([program], env=dict(os.environ, OMP_NUM_THREADS="1")))[0]
