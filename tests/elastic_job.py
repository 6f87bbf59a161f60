"""An elastic job whose workers the test starts, ends and restarts itself."""
import contextlib
import csv
import re
import subprocess

import harness
from harness import held_ports

SAMPLES = 1920
BATCH = 64
PATIENCE = 120  # seconds for what takes a few


def until(condition, run):
    """Fails with all that the workers have printed."""
    harness.until(condition, run.text, PATIENCE)


class Job:
    """Workers of one elastic job, started by hand: nobody but the test restarts them."""

    def __init__(self, home, program, data, folder, workers, *flags, **variables):
        self.home, self.folder, self.size, self.variables = home, folder, workers, variables
        folder.mkdir(parents=True, exist_ok=True)
        [self.port] = held_ports(1)
        self.csv = folder / "log.csv"
        self.seconds_to_meet = 8 * home.build.slowness
        self.command = [program, f"--data={data}", "--no-progress", f"--csv={self.csv}",
                        f"--peer-timeout={4 * home.build.slowness}",
                        f"--rendezvous-timeout={self.seconds_to_meet}", *flags]
        self.workers = []  # of every start, in order
        self.of_rank = {}
        for rank in range(workers):
            self.start(rank)

    def start(self, rank):
        env = {"RANK": str(rank), "WORLD_SIZE": str(self.size), "LOCAL_RANK": str(rank),
               "LOCAL_WORLD_SIZE": str(self.size), "MASTER_ADDR": "127.0.0.1",
               "MASTER_PORT": str(self.port), "DTRAIN_JOB_TOKEN": "of this test"} | self.variables
        path = self.folder / f"{len(self.workers)}-rank-{rank}.out"
        worker = self.home.start(self.command, env=env, stdout=open(path, "wb"),
                                 stderr=subprocess.STDOUT)
        worker.output = path
        self.workers.append(worker)
        self.of_rank[rank] = worker
        return worker

    def text(self):
        """What all have printed but for the log's lines."""
        return "".join(f"--- {worker.output.name} ({worker.poll()})\n" +
                       re.sub(r"(?m)^step .*\n", "", worker.output.read_text())
                       for worker in self.workers)

    def running(self):
        return [worker for worker in self.workers if worker.poll() is None]

    def wait(self, *but):
        """Until all have ended but those."""
        until(lambda: all(worker in but for worker in self.running()), self)

    def steps(self):
        """Step -> position in the stream of samples after it, as logged."""
        if not self.csv.exists():
            return {}
        whole_lines = self.csv.read_text().rpartition("\n")[0]  # The last may be under way.
        rows = list(csv.DictReader(whole_lines.splitlines()))
        steps = {int(row["step"]): round(float(row["epoch"]) * SAMPLES) for row in rows}
        assert len(steps) == len(rows), f"a step was logged twice\n{self.text()}"
        return steps

    def check_samples(self, epochs, fewest=1):
        """Each step's samples follow those of the step before, and the last are the last."""
        steps = sorted(self.steps().items())
        assert steps[-1][1] == epochs * SAMPLES, self.text()
        for (step, position), (next_step, next_position) in zip(steps, steps[1:]):
            taken = next_position - position
            most = BATCH * self.size * (next_step - step)
            is_last = next_position == epochs * SAMPLES
            assert (BATCH * fewest * (next_step - step) <= taken or is_last), self.text()
            assert taken <= most, self.text()

    def accuracy(self):
        return max(float(number) for number in
                   re.findall(r"held-out accuracy ([\d.]+) %", self.text()))


@contextlib.contextmanager
def running_jobs():
    """A list to add jobs to, whose workers end with it."""
    jobs = []
    try:
        yield jobs
    finally:
        for each in jobs:
            for worker in each.running():
                worker.kill()
                worker.wait()
