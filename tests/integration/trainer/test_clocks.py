"""Hosts whose clocks are an hour apart: what they measure must not depend on each other's time."""
import json
import shutil
import subprocess

import pytest

import idx_data
from harness import EXIT_OK, held_ports

HALF_AN_HOUR = 1.8e9  # microseconds

WALL = """#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>

int clock_gettime(clockid_t clock, struct timespec* time) {
  int (*real)(clockid_t, struct timespec*) =
      (int (*)(clockid_t, struct timespec*))dlsym(RTLD_NEXT, "clock_gettime");
  int status = real(clock, time);
  time->tv_sec += clock == CLOCK_REALTIME ? 3600 : 0;
  return status;
}
"""


def hour_ahead(home, clock):
    """The words before a command, and the variables, that move this clock of it."""
    if clock == "wall":
        (home.folder / "wall.c").write_text(WALL)
        subprocess.run([shutil.which("cc"), "-shared", "-fPIC", "-o", "wall.so", "wall.c"],
                       cwd=home.folder, check=True)
        return [], {"LD_PRELOAD": f"{home.folder}/wall.so",
                    "ASAN_OPTIONS": f"{home.env['ASAN_OPTIONS']}:verify_asan_link_order=0"}
    words = ["unshare", "--time", "--monotonic=3600", "--"]
    if subprocess.run([*words, "true"], capture_output=True).returncode != 0:
        pytest.skip("this machine grants no time namespace")
    return words, {}


@pytest.mark.parametrize("clock", ["wall", "monotonic"])
def test_two_hosts_whose_clocks_are_an_hour_apart_train_and_share_a_timeline(home, clock, tmp_path):
    data = idx_data.write(tmp_path)
    [port] = held_ports(1)
    timeline = home.folder / "timeline.json"
    words, variables = hour_ahead(home, clock)
    ranks = []
    for rank in range(2):
        env = {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1",
               "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        command = [home.trainer_path, f"--data={data}", "--steps=60", f"--timeline={timeline}"]
        if rank == 1:
            command = [*words, *command]
            env = {**env, **variables}
        ranks.append(home.start(command, env=env))
    for rank in ranks:
        out, err = rank.communicate(timeout=60 * home.build.slowness)
        assert rank.returncode == EXIT_OK, (out, err)
    events = [e for e in json.loads(timeline.read_text())["traceEvents"] if e["ph"] == "X"]
    begins = [min(e["ts"] for e in events if e["pid"] == rank) for rank in range(2)]
    ends = [max(e["ts"] + e["dur"] for e in events if e["pid"] == rank) for rank in range(2)]
    # Far less than the hour that the clocks are apart, however slow the machine is.
    assert abs(begins[0] - begins[1]) < HALF_AN_HOUR
    assert abs(ends[0] - ends[1]) < HALF_AN_HOUR
