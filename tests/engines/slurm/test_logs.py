"""What ranks print, however much it is, from where it lies."""
import os
import subprocess

import pytest

from harness import until

LINE = "a line of what a rank prints, of which there are very many\n"
MANY = 200_000_000 // len(LINE)


@pytest.fixture
def slurm(slurm_home):
    return slurm_home


@pytest.fixture(scope="module")
def most_memory():
    """Of a dtrain that prints the logs of a job, in KiB: less than a third of what it prints."""
    return 64 * 1024


def print_logs(slurm, most_memory, *flags):
    """What it printed: bytes, lines and the last line."""
    with slurm.start([slurm.dtrain_path, "logs", *flags], stderr=subprocess.DEVNULL) as program:
        size, lines, last = 0, 0, b""
        while block := program.stdout.read(1 << 20):
            size += len(block)
            lines += block.count(b"\n")
            last = (last + block)[-100:]
        _, status, usage = os.wait4(program.pid, 0)
        program.returncode = os.waitstatus_to_exitcode(status)
    assert program.returncode == 0 and usage.ru_maxrss < most_memory
    return size, lines, last.splitlines()[-1].decode()


def test_logs_larger_than_memory_are_printed_piece_by_piece(slurm, most_memory):
    slurm.submit("much", "sh", "-c", f"yes '{LINE.strip()}' | head -n {MANY}; echo end")
    slurm.wait_for_end("much", 0)
    whole = (MANY * len(LINE) + 4, MANY + 1, "end")
    assert print_logs(slurm, most_memory, "much", "-i", "worker-0") == whole
    assert print_logs(slurm, most_memory, "much", "-i", "worker-0", "-f") == whole
    assert slurm.lines("much", "-i", "worker-0", "--tail=2") == [LINE.strip(), "end"]
    assert slurm.lines("much", "-i", "worker-0", "--tail=1", "-f") == ["end"]
    assert slurm.lines("much", "-i", "worker-0", "--tail=0") == []
    assert slurm.lines("much", "-i", "worker-0", "--since=1s") == []


def test_a_line_larger_than_memory_is_printed_in_parts(slurm, most_memory):
    size = 100_000_000
    slurm.submit("long", "sh", "-c", f"head -c {size} /dev/zero | tr '\\0' x; echo; echo end")
    slurm.wait_for_end("long", 0)
    assert print_logs(slurm, most_memory, "long", "-i", "worker-0") == (size + 5, 2, "end")


def test_the_last_lines_are_those_of_both_streams_in_time(slurm):
    slurm.submit("both", "sh", "-c",
                 "echo a; sleep 2.2; echo b >&2; sleep 2.2; echo c; sleep 2.2; printf d >&2")
    slurm.wait_for_end("both", 0)
    assert [slurm.lines("both", "-i", "worker-0", f"--tail={count}") for count in range(6)] == [
        [], ["d"], ["c", "d"], ["b", "c", "d"], ["a", "b", "c", "d"], ["a", "b", "c", "d"]]


def test_following_begins_with_what_there_is_in_the_order_of_its_times(slurm):
    slurm.submit("turns", "sh", "-c", "sleep $((RANK * 3)); echo $RANK a; sleep 5; echo $RANK b; "
                                      "exec sleep 600", flags=["--workers=2"])
    until(lambda: "1 b" in slurm.dtrain("logs", "turns").out, "all is printed")
    said = ["worker-0 | 0 a", "worker-1 | 1 a", "worker-0 | 0 b", "worker-1 | 1 b"]
    until(lambda: slurm.lines("turns") == said, "its times are noted")
    with slurm.start([slurm.dtrain_path, "logs", "-f", "turns"], text=True) as follows:
        assert [follows.stdout.readline().strip() for _ in said] == said
        follows.terminate()


def test_a_rank_that_prints_while_it_is_followed_is_heard_at_once(slurm):
    slurm.submit("talks", "sh", "-c", "echo first; until [ -e go ]; do sleep 0.1; done; "
                                      "printf 'sec'; sleep 1; echo ond; printf last")
    slurm.running("talks")
    with slurm.start([slurm.dtrain_path, "logs", "-f", "talks", "-i", "worker-0"],
                     text=True) as follows:
        assert follows.stdout.readline() == "first\n"
        (slurm.folder / "go").touch()
        assert follows.stdout.readline() == "second\n"
        assert follows.stdout.read().rstrip("\n") == "last"
        assert follows.wait(60) == 0
