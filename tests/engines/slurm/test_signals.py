"""What Slurm's signals leave of a rank, at whatever moment they come: nothing."""
import os
import shutil
import signal

import pytest

from harness import EXIT_JOB_FAILED, until


@pytest.fixture
def slurm(slurm_home):
    return slurm_home


def test_what_a_rank_s_shell_started_ends_with_it(slurm):
    """By a KILL for the shell and its command alone, of which Slurm does not see the rest."""
    slurm.submit("shell", "sh", "-c", "echo $$; exec sleep 600")
    slurm.running("shell")
    command = until(lambda: slurm.lines("shell", "-i", "worker-0"), "it has said its number")[0]
    os.kill(slurm.get("shell")["instances"][0]["pid"], signal.SIGKILL)
    os.kill(int(command), signal.SIGKILL)
    slurm.wait_for_no_processes()


def test_a_job_cancelled_while_its_ranks_are_being_started_leaves_nothing(slurm, slurm_cluster):
    """In a job, only the list of where all are is made by awk."""
    slurm.stand_in("awk", '[ -z "$SLURM_JOB_ID" ] || exec sleep 600\nexec /usr/bin/awk "$@"')
    slurm.submit("early", "echo", "started", flags=["--workers=2"])
    starts = slurm.state / "dtrain/slurm/default/early/0"
    until(lambda: len(list(starts.glob("worker-*.start"))) == 2, "the ranks wait for each other")
    slurm_cluster.call("scancel", slurm.get("early")["uuid"])
    result = slurm.dtrain("wait", "early", expect=EXIT_JOB_FAILED)
    assert "scancel" in result.err
    slurm.wait_for_no_processes()
    assert not any("started" in line for line in slurm.lines("early"))


def test_a_rank_that_is_told_to_make_room_before_its_command_starts_does_not_start_it(slurm):
    """A rank's last question before that is where the others are."""
    slurm.stand_in("sed", 'case "$*" in *1p*/cluster) kill -USR1 $PPID ;; esac\n'
                          f'exec {shutil.which("sed")} "$@"')
    slurm.submit("told", "echo", "started")
    slurm.wait_for_end("told")
    assert slurm.get("told")["cause"]["exitCode"] == 75
    assert slurm.lines("told") == []
