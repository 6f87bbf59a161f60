"""Commands beside a rank, on its host."""
import shutil

import pytest

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
    result = ssh.dtrain("exec", "over", "--", "true", expect=EXIT_ENGINE)
    assert result.err == "dtrain exec: job over has ended (SUCCEEDED); nothing to exec into\n"


@pytest.mark.usefixtures("apart")
@pytest.mark.parametrize("shell", ["fish", "tcsh"])
def test_whatever_shell_a_user_logs_in_with_words_arrive_and_none_is_run(ssh, ssh_home, ssh_hosts,
                                                                        shell):
    code = ssh_home.folder / "code"
    code.mkdir()
    (code / "own").write_text(f"{shell} {ssh_home.folder}")
    marker = ssh_home.folder / "ran"
    hostile = f"ends\\' ; touch {marker} ; echo '\\\n!! $(touch {marker})\n"
    passwd = ssh_home.folder / "passwd"
    env = {"DTRAIN_SSH_HOSTS": "host3"}
    change = f"sed '/^root:/s|[^:]*$|{shutil.which(shell)}|' /etc/passwd >{passwd}"
    with ssh_hosts.mounts("host3", f"{change} && mount --bind {passwd} /etc/passwd",
                          "umount /etc/passwd"):
        asked = "status fish-path" if shell == "fish" else "echo $tcsh"
        assert ssh_hosts.on("host3", asked).strip(), "it is the login's shell"
        ssh.submit("shell", "sh", "-c", "cat own; exec sleep 600", env=env,
                   flags=["--grace-period=1s", "--sync-mode=local", f"--sync-source={code}",
                          f"--env=WORD={hostile}"])
        shown = ssh.dtrain("exec", "shell", "--", "printf", "%s|", hostile, "", "-n", env=env)
        assert shown.out == f"{hostile}||-n|"
        assert ssh.dtrain("exec", "shell", "--", "printenv", "WORD", env=env).out == f"{hostile}\n"
        assert ssh.lines("shell") == [(code / "own").read_text()]
        assert "0 GPUs" not in ssh.dtrain("check", env=env).out
        assert "worker-0" in ssh_home.dtrain("top", "job", "shell", env=env).out
        ssh.dtrain("delete", "shell")
    assert not marker.exists()
