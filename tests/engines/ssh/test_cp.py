"""What a job wrote on its hosts, brought back."""
import os

import pytest

from harness import EXIT_ENGINE, EXIT_NOT_FOUND


def code_folder(home, script):
    code = home.folder / "code"
    code.mkdir()
    (code / "train").write_text(script)
    return ["--sync-mode=local", f"--sync-source={code}"]


def test_what_ranks_wrote_on_their_hosts_is_copied_until_the_job_is_deleted(ssh, ssh_home, ssh_hosts):
    ssh.submit("ddp", "sh", "train", flags=["--workers=3", *code_folder(ssh_home, (
        'mkdir -p ckpt/deep\nhostname >ckpt/host\necho $RANK >"ckpt/deep/rank $RANK"\n'
        "head -c 2000000 /dev/zero | tr '\\0' w >ckpt/weights\nln -s /etc/passwd ckpt/away\n"))])
    ssh.wait("ddp")
    here = ssh_home.folder / "here"
    here.mkdir()
    for rank, host in enumerate(ssh_hosts.names):
        result = ssh.dtrain("cp", f"ddp/worker-{rank}:ckpt", here / host)
        assert (here / host / "host").read_text() == ssh_hosts.on(host, "hostname")
        assert (here / host / f"deep/rank {rank}").read_text() == f"{rank}\n"
        assert (here / host / "weights").read_bytes() == b"w" * 2000000
        assert "away" in result.err and "/etc/passwd" in result.err
    ssh.dtrain("cp", "ddp:ckpt/weights", here)
    absolute = ssh_hosts.on("host1", "ls ~/.local/state/dtrain/hosts/*/0/code/train").strip()
    ssh.dtrain("cp", f"ddp:{absolute}", here)
    result = ssh.dtrain("cp", "ddp/worker-1:none", here, expect=EXIT_NOT_FOUND)
    assert "host2" in result.err and "none" in result.err and result.err.count("\n") == 1
    assert sorted(os.listdir(here)) == [*ssh_hosts.names, "train", "weights"]
    ssh.dtrain("delete", "ddp")
    ssh.dtrain("cp", "ddp:ckpt", here, expect=EXIT_NOT_FOUND)


@pytest.mark.usefixtures("apart")
def test_a_host_that_cannot_copy_is_said_in_a_line_and_nothing_is_kept(ssh, ssh_home, ssh_hosts):
    ssh.submit("wrote", "sh", "train", flags=["--workers=3", *code_folder(
        ssh_home, "mkdir ckpt\nhead -c 2000000 /dev/zero >ckpt/weights\n")])
    ssh.wait("wrote")
    here = ssh_home.folder / "here"
    here.mkdir()
    cases = [('/bin/tar "$@" | head -c 700000', "was interrupted"),
             ('/bin/tar "$@"; echo "tar: ./weights: Cannot open: Permission denied" >&2; exit 2',
              "Permission denied"),
             ('/bin/tar "$@" | head -c 700000; kill -9 $PPID', "host3")]
    for script, why in cases:
        with ssh_hosts.tool("host3", "tar", script):
            result = ssh.dtrain("cp", "wrote/worker-2:ckpt", here, expect=EXIT_ENGINE)
        assert why in result.err and result.err.count("\n") == 1, result.err
        assert os.listdir(here) == []
