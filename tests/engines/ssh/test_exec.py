"""Commands beside a rank, on its host."""
from harness import EXIT_ENGINE


def test_a_command_runs_beside_a_rank_on_its_host(ssh, ssh_home, ssh_hosts):
    hostile = "it's $HOME\n\"two\" lines"
    ssh.submit("beside", "sleep", "600", flags=["--workers=3", "--grace-period=1s",
                                                f"--env=WORD={hostile}"])
    shown = ssh.dtrain("exec", "beside", "-i", "worker-2", "--", "sh", "-c",
                       "hostname; echo $RANK; pwd; printf %s \"$WORD\"; exit 7", expect=7)
    host, rank, folder, word = shown.out.split("\n", 3)
    assert (host, rank, folder, word) == (
        ssh_hosts.on("host3", "hostname").strip(), "2", str(ssh_home.folder), hostile)
    fed = ssh.dtrain("exec", "beside", "--", "cat", stdin="through\n")
    assert fed.out == "through\n"
    ssh.dtrain("delete", "beside")
    ssh.submit("over", "true")
    ssh.wait("over")
    assert "not running" in ssh.dtrain("exec", "over", "--", "true", expect=EXIT_ENGINE).err
