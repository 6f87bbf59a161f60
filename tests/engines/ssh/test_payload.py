"""What a job's hosts are sent: the bundled trainer and the code, where they lack it."""
import os
import pathlib
import subprocess

import pytest

import idx_data
from harness import EXIT_ENGINE, until


def kept(hosts, host):
    """What the host keeps of what it was sent, by inode: nothing that comes again has the same."""
    number = host.removeprefix("host")
    folder = pathlib.Path(hosts.folder, f"cache{number}", "dtrain/ssh")
    return {entry.name: entry.stat().st_ino for entry in folder.iterdir()
            if entry.suffix != ".sums"} if folder.exists() else {}


def forget(hosts):
    for host in hosts.names:
        hosts.on(host, 'rm -rf "$XDG_CACHE_HOME"')


def test_the_trainer_goes_once_to_a_host_that_lacks_the_build(ssh, ssh_home, ssh_hosts):
    forget(ssh_hosts)
    data = idx_data.write(ssh_home.folder / "data")
    ssh.submit("first", f"--data={data}", "--epochs=1", flags=["--workers=3"])
    ssh.wait("first")
    sent = [kept(ssh_hosts, host) for host in ssh_hosts.names]
    assert [len(each) for each in sent] == [1, 1, 1]
    ssh.submit("second", "sh", "-c", "echo", flags=["--workers=3"])
    ssh.wait("second")
    ssh.submit("third", f"--data={data}", "--epochs=1", flags=["--workers=3"])
    ssh.wait("third")
    assert [kept(ssh_hosts, host) for host in ssh_hosts.names] == sent
    host = ssh_hosts.names[1]
    run = ssh_hosts.on(host, '"$XDG_CACHE_HOME"/dtrain/ssh/*/bin/dtrain-trainer --help')
    assert "--epochs" in run


def test_what_is_damaged_on_a_host_is_sent_again(ssh, ssh_home, ssh_hosts):
    forget(ssh_hosts)
    data = idx_data.write(ssh_home.folder / "data")
    code = ssh_home.folder / "code"
    code.mkdir()
    (code / "train.sh").write_text("echo whole\n")
    env = {"DTRAIN_SSH_HOSTS": "host2"}

    def run(name):
        ssh.submit(f"{name}-trainer", f"--data={data}", "--steps=2", env=env)
        ssh.submit(f"{name}-code", "sh", "train.sh", env=env,
                   flags=["--sync-mode=local", f"--sync-source={code}"])
        ssh.wait(f"{name}-trainer")
        ssh.wait(f"{name}-code")
        assert ssh.lines(f"{name}-code") == ["whole"]

    run("first")
    before = kept(ssh_hosts, "host2")
    folder = pathlib.Path(ssh_hosts.folder, "cache2/dtrain/ssh")
    whole = {}
    for name in before:
        for path in [folder / name, *folder.glob(f"{name}/**/*")]:
            if path.is_file():
                whole[path] = path.read_bytes()
                with path.open("r+b") as file:  # A bit of it, and no byte more or less.
                    first = file.read(1)
                    file.seek(0)
                    file.write(bytes([first[0] ^ 1]))
    run("second")
    after = kept(ssh_hosts, "host2")
    assert after.keys() == before.keys()
    for path, content in whole.items():  # An inode that is free may be the next one's.
        assert path.read_bytes() == content, path
    run("third")
    assert kept(ssh_hosts, "host2") == after


def test_a_trainer_of_the_tarball_is_sent_with_what_it_came_with(ssh, ssh_home, ssh_hosts):
    """What a host is sent is laid out as the tarball is: the same, sent on from there."""
    forget(ssh_hosts)
    data = idx_data.write(ssh_home.folder / "data")
    ssh.submit("first", f"--data={data}", "--steps=2", env={"DTRAIN_SSH_HOSTS": "host1"})
    ssh.wait("first")
    bundle, = kept(ssh_hosts, "host1")
    trainer = f"{ssh_hosts.folder}/cache1/dtrain/ssh/{bundle}/bin/dtrain-trainer"
    ssh.submit("second", f"--data={data}", "--steps=2",
               env={"DTRAIN_SSH_HOSTS": "host2", "DTRAIN_TRAINER": trainer})
    ssh.wait("second")
    assert kept(ssh_hosts, "host2").keys() == {bundle}


@pytest.fixture
def older(apart, ssh_hosts):
    """host3 is a Debian 11 meanwhile, with glibc 2.31."""
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
    root = cache / "dtrain/roots/bullseye-ssh"
    if not root.exists():
        pytest.skip("no root of Debian 11: ./dev build ssh makes it, as root")
    with ssh_hosts.root("host3", root):
        forget(ssh_hosts)
        yield


def test_the_trainer_runs_where_glibc_is_older_than_its_own(ssh, ssh_home, ssh_hosts, older):
    data = idx_data.write(ssh_home.folder / "data")
    assert ssh_hosts.on("host3", "getconf GNU_LIBC_VERSION") == "glibc 2.31\n"
    ssh.submit("ring", f"--data={data}", "--epochs=1", flags=["--workers=3"])
    ssh.wait("ring")
    # What it loads too: libmpi is the host's own.
    ssh_hosts.on("host3", 'mpirun --allow-run-as-root --oversubscribe -np 2'
                          ' "$XDG_CACHE_HOME"/dtrain/ssh/*/bin/dtrain-trainer --steps=2'
                          f" --no-progress --communication=mpi --data={data}")


@pytest.mark.usefixtures("apart")
def test_a_host_that_cannot_start_the_trainer_is_named_before_anything_starts(ssh, ssh_home, ssh_hosts):
    forget(ssh_hosts)
    data = idx_data.write(ssh_home.folder / "data")
    cache = ssh_hosts.on("host2", 'mkdir -p "$XDG_CACHE_HOME"; echo "$XDG_CACHE_HOME"').strip()
    with ssh_hosts.mounts("host2", f"mount -t tmpfs -o noexec none {cache}", f"umount {cache}"):
        refused = ssh.submit("noexec", f"--data={data}", flags=["--workers=3"], expect=EXIT_ENGINE)
    assert "host2" in refused.err and "cannot start the trainer" in refused.err
    assert "ermission denied" in refused.err


def test_the_trainer_needs_no_library_but_libc(ssh_home):
    trainer = ssh_home.trainer_path
    text = subprocess.run(["readelf", "-d", trainer], check=True, text=True,
                          stdout=subprocess.PIPE).stdout
    needed = {line.split("[")[1].split("]")[0] for line in text.splitlines() if "(NEEDED)" in line}
    assert needed <= {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}


def test_code_goes_where_it_changed(ssh, ssh_home, ssh_hosts):
    forget(ssh_hosts)
    code = ssh_home.folder / "code"
    (code / "deep").mkdir(parents=True)
    (code / "deep/train.sh").write_text("pwd; cat ../large | wc -c; cat name\n")
    (code / "deep/name").write_text("one\n")
    (code / "large").write_bytes(bytes(range(256)) * 4096)
    flags = ["--workers=4", "--sync-mode=local", f"--sync-source={code}", "--working-dir=deep"]
    ssh.submit("one", "sh", "train.sh", flags=flags)
    ssh.wait("one")
    for worker in range(4):
        lines = ssh.lines("one", "-i", f"worker-{worker}")
        assert lines[0].endswith("/code/deep") and lines[1:] == [str(1 << 20), "one"]
    before = [kept(ssh_hosts, host) for host in ssh_hosts.names]
    assert all(before)
    (code / "deep/name").write_text("two\n")
    ssh.submit("two", "sh", "train.sh", flags=flags)
    ssh.wait("two")
    assert ssh.lines("two", "-i", "worker-3")[2] == "two"
    for old, host in zip(before, ssh_hosts.names):
        now = kept(ssh_hosts, host)
        assert old.items() < now.items() and len(now) - len(old) < len(old) + 1
    for name in "one", "two":
        ssh.dtrain("delete", name)
    for host in ssh_hosts.names:
        until(lambda: ssh_hosts.of_jobs(host) == "", f"nothing of a job is left on {host}")


def test_code_is_looked_into_before_anything_starts(ssh, ssh_home):
    code = ssh_home.folder / "code"
    code.mkdir()
    flags = ["--workers=3", "--sync-mode=local", f"--sync-source={code}"]
    absent = ssh.submit("absent", "./train", flags=flags, expect=EXIT_ENGINE)
    assert "3 of 3 hosts cannot be used" in absent.err and "lacks the program ./train" in absent.err
    folder = ssh.submit("folder", "true", flags=[*flags, "--working-dir=sub"], expect=EXIT_ENGINE)
    assert "code/sub" in folder.err
