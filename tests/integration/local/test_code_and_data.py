"""What ranks find where they start: data at its path, code, secrets; and TensorBoard beside them."""
import os
import re
import time

import pytest

from harness import (EXIT_ERROR, EXIT_JOB_FAILED, EXIT_NOT_FOUND, EXIT_USAGE, git_repository,
                     needs_mounts, until)
from test_roles import ARENA_LINE


@pytest.fixture
def data(home):
    folder = home.folder / "my data"
    folder.mkdir()
    (folder / "file").write_text("here\n")
    return folder


@needs_mounts
def test_data_is_at_its_path_for_the_ranks_alone(home, data):
    home.dtrain("submit", "--name=there", f"--data-dir={data}:/dtrain-test/deep/data", "--wait",
                "--", "sh", "-c", "cat /dtrain-test/deep/data/file; ls / >&2; "
                "echo new > /dtrain-test/deep/data/made")
    assert "here" in home.lines("there")
    assert (data / "made").read_text() == "new\n"
    assert not os.path.exists("/dtrain-test")


@needs_mounts
def test_read_only_data_cannot_be_written(home, data):
    home.dtrain("submit", "--name=ro", f"--data-dir={data}:/mnt/dtrain-test:ro", "--", "sh", "-c",
                "cat /mnt/dtrain-test/file; touch /mnt/dtrain-test/x && exit 0; exit 9")
    assert home.wait_for_end("ro", expect=EXIT_JOB_FAILED)["cause"]["exitCode"] == 9
    assert home.lines("ro")[0] == "here" and not (data / "x").exists()


@needs_mounts
def test_named_data_and_config_files_are_mounted(home, data):
    (home.folder / "conf").write_text("a: 1\n")
    home.dtrain("data", "add", "training-data", f"--path={data}")
    home.dtrain("submit", "--name=named", "--data=training-data:/data-of-test",
                f"--config-file={home.folder}/conf:/etc/dtrain-test.conf", "--wait", "--",
                "cat", "/data-of-test/file", "/etc/dtrain-test.conf")
    assert home.lines("named") == ["here", "a: 1"]


@needs_mounts
def test_a_share_that_this_machine_has_mounted_is_found(home):
    if os.geteuid() != 0:
        pytest.skip("only root mounts")
    share = home.folder / "nas"
    share.mkdir()
    script = (f"mount -t tmpfs server:/export {share} && mkdir {share}/sub && "
              f"echo shared > {share}/sub/file && "
              f"{home.dtrain_path} data add set --nfs=server:/export && "
              f"{home.dtrain_path} submit -q --name=a --data=nas://server/export/sub:/dtrain-test "
              f"--data=set:/dtrain-set:ro --wait -- cat /dtrain-test/file /dtrain-set/sub/file")
    home.run(["unshare", "-m", "sh", "-c", script])
    assert home.lines("a") == ["shared", "shared"]


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone can give up the right to mount")
def test_where_no_mounts_may_be_made_data_is_refused_at_once_or_taken_where_it_lies(home, data):
    without = ["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin", home.dtrain_path,
               "submit", "--wait"]
    result = home.run([*without, "--name=a", f"--data-dir={data}:/dtrain-test", "--", "true"],
                      expect=EXIT_ERROR)
    assert "cannot create a mount namespace" in result.err and f"--data-dir={data}" in result.err
    home.dtrain("get", "a", expect=EXIT_NOT_FOUND)
    home.run([*without, "--name=b", f"--data-dir={data}", "--", "cat", data / "file"])
    assert home.lines("b") == ["here"]


@needs_mounts
def test_working_folder_and_program_may_be_below_a_mount(home, data):
    (data / "sub" / "bin").mkdir(parents=True)
    for name in ("run", "bin/tool"):
        (data / "sub" / name).write_text("#!/bin/sh\npwd\n")
        (data / "sub" / name).chmod(0o755)
    words = [f"--data-dir={data}:/dtrain-test", "--working-dir=/dtrain-test/sub"]
    for name, program, path in (("relative", "./run", "/bin"), ("absolute", "/dtrain-test/sub/run", "/bin"),
                                ("in-path", "tool", "/dtrain-test/sub/bin:/bin")):
        home.dtrain("submit", f"--name={name}", *words, f"--env=PATH={path}", "--wait", "--", program)
        assert home.lines(name) == ["/dtrain-test/sub"]
    for wrong in (["--working-dir=/dtrain-test/none", "--", "./run"], ["--", "./none"],
                  ["--", "/dtrain-test/none"]):
        assert "none" in home.dtrain("submit", *words, *wrong, expect=EXIT_USAGE).err


def test_a_program_is_looked_for_in_the_jobs_own_path(home):
    tool = home.folder / "bin" / "dtrain-test-tool"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\necho found\n")
    tool.chmod(0o755)
    home.dtrain("submit", "--name=path", f"--env=PATH={tool.parent}:/bin", "--wait", "--", tool.name)
    assert home.lines("path") == ["found"]


@needs_mounts
@pytest.mark.enters_mounts
def test_exec_sees_the_jobs_mounts(home, data):
    home.dtrain("submit", "--name=in", f"--data-dir={data}:/dtrain-test", "--", "sleep", "600")
    home.running("in")
    assert home.dtrain("exec", "in", "--", "cat", "/dtrain-test/file").out == "here\n"
    home.dtrain("delete", "in")


@needs_mounts
def test_arenas_whole_line_runs_as_it_is(home, data, fake_deepspeed):
    home.script("tensorboard", f"echo board $*; touch {home.folder}/board-is-up; exec sleep 600")
    home.dtrain("data", "add", "training-data", f"--path={data}")
    line = [*ARENA_LINE[:-1], "--data=training-data:/data", "--tensorboard",
            "--logdir=/data/deepspeed_data", ARENA_LINE[-1] + f" && until [ -e {home.folder}/board-is-up ]; "
            "do sleep 0.05; done && cat /data/file"]
    home.dtrain("submit", *line, env=fake_deepspeed)
    job = home.wait_for_end("deepspeed-helloworld")
    assert job["status"] == "SUCCEEDED" and job["tensorboard"].startswith("http://localhost:")
    assert "here" in home.lines("deepspeed-helloworld", "-i", "launcher-0")
    port = job["tensorboard"].rpartition(":")[2]
    assert home.lines("deepspeed-helloworld", "-i", "tensorboard-0") == [
        f"board --logdir=/data/deepspeed_data --host=localhost --port={port}"]


def test_a_tensorboard_that_is_not_there_is_a_notice_and_one_that_dies_no_failure(home):
    path = f"{home.folder}:/usr/bin:/bin"
    result = home.dtrain("submit", "--name=none", "--tensorboard", "--", "true",
                         env={"PATH": path})
    assert "TensorBoard" in result.err
    home.script("tensorboard", "exit 1")
    home.dtrain("submit", "--name=dies", "--tensorboard", "--", "sleep", "0.5", env={"PATH": path})
    assert home.wait_for_end("dies")["status"] == "SUCCEEDED"


def test_names_of_data_and_code_are_kept(home, data):
    home.dtrain("data", "add", "a", f"--path={data}", "--read-only")
    home.dtrain("data", "add", "a", "--claim=pvc", expect=EXIT_USAGE)
    home.dtrain("data", "add", "a", "--claim=pvc", "--replace")
    home.dtrain("data", "add", "b", "--nfs=server:/x")
    assert home.dtrain("data", "get", "a").out == "claim: pvc\n"
    assert "server:/x" in home.dtrain("data", "list").out
    assert "server:/x is not mounted" in home.dtrain("submit", "--data=b:/x", "--", "true",
                                                     expect=EXIT_USAGE).err
    for wrong in ("--nfs=server", "--bucket=bucket", "--bucket=ftp://x/y", "--nfs=:/x"):
        assert wrong in home.dtrain("data", "add", "w", wrong, expect=EXIT_USAGE).err
    home.dtrain("data", "delete", "a")
    home.dtrain("data", "get", "a", expect=EXIT_NOT_FOUND)
    home.dtrain("data", "add", "c", expect=EXIT_USAGE)
    home.dtrain("code", "add", "mine", f"--path={data}")
    assert "mine" in home.dtrain("code", "list").out
    home.dtrain("config", "set", "namespace", "team")  # What else the file holds stays.
    assert home.dtrain("code", "get", "mine").out == f"path: {data}\n"


@pytest.fixture
def repository(home):
    folder = home.folder / "repo"
    git = git_repository(home, folder, "echo first")
    git("tag", "v1")
    (folder / "train.sh").write_text("echo second\n")
    git("commit", "--quiet", "-am", "second")
    return f"file://{folder}"


@pytest.mark.parametrize("ref, line", [("", "second"), ("@main", "second"), ("@v1", "first")])
def test_code_comes_from_git_at_its_ref(home, repository, ref, line):
    home.dtrain("submit", "--name=git", "--sync-mode=git", f"--sync-source={repository}{ref}",
                "--wait", "--", "sh", "train.sh")
    assert home.lines("git") == [line]


@pytest.mark.parametrize("source, why", [("file:///no/such/repo", "'/no/such/repo' does not appear"),
                                         ("{repo}@nobranch", "find remote ref nobranch")])
def test_code_that_cannot_be_had_is_one_line_and_nothing_is_left(home, repository, source, why):
    result = home.dtrain("submit", "--name=none", "--sync-mode=git",
                         f"--sync-source={source.format(repo=repository)}", "--", "true",
                         expect=EXIT_USAGE)
    assert result.err.count("\n") == 1 and "--sync-source" in result.err and why in result.err
    assert home.dtrain("list", "-o", "name").out == ""
    assert list((home.state / "dtrain" / "staging").iterdir()) == []


def test_a_token_is_in_no_argument_log_plan_or_variable(home):
    show = home.script("git", "echo \"$*\" >> calls; echo failed for $DTRAIN_GIT_TOKEN >&2; exit 1")
    assert show
    env = {"PATH": f"{home.folder}:{os.environ['PATH']}", "DTRAIN_GIT_TOKEN": "s3cret"}
    words = ["submit", "--name=t", "--sync-mode=git", "--sync-source=https://example.org/x.git"]
    assert "s3cret" not in home.dtrain(*words, "--dry-run", "--", "true", env=env).out
    result = home.dtrain(*words, "--", "true", env=env, expect=EXIT_USAGE)
    assert "***" in result.err and "s3cret" not in result.err
    home.submit("rank", "env", env=env)
    home.dtrain("wait", "rank")
    assert not any("s3cret" in line for line in home.lines("rank"))
    home.dtrain("submit", "--sync-mode=git", "--sync-source=https://me:pass@example.org/x", "--",
                "true", expect=EXIT_USAGE)
    result = home.dtrain("code", "add", "x", "--git=https://me:pass@example.org/x", expect=EXIT_USAGE)
    assert "pass@" not in result.err and not (home.folder / "config").exists()


def test_a_local_folder_is_copied_as_it_is_but_for_what_is_ignored(home):
    folder = home.folder / "code"
    (folder / "sub" / "cache").mkdir(parents=True)
    (folder / "train.sh").write_text("find . -type f | sort; sh sub/more.sh\n")
    (folder / "sub" / "more.sh").write_text("echo more\n")
    (folder / "sub" / "cache" / "big").write_text("x")
    (folder / "weights.bin").write_text("x")
    (folder / ".dtrainignore").write_text("# big things\n*.bin\nsub/cache/\n")
    home.dtrain("code", "add", "mine", f"--path={folder}")
    home.dtrain("submit", "--name=local", "--code=mine", "--wait", "--", "sh", "train.sh")
    assert home.lines("local") == ["./sub/more.sh", "./train.sh", "more"]
    home.dtrain("submit", "--code=none", "--", "true", expect=EXIT_NOT_FOUND)


def uploaded(result):
    """New files and bytes of a submission's upload."""
    return re.search(r"upload: .*; new: (\d+), (.*)", result.err).groups()


@pytest.fixture
def code(home):
    folder = home.folder / "code"
    (folder / "deep").mkdir(parents=True)
    for i in range(200):
        (folder / "deep" / f"f{i}").write_text(f"{i}\n" * 10)
    (folder / "run").write_text("#!/bin/sh\necho run\n")
    (folder / "run").chmod(0o755)
    (folder / "link").symlink_to("run")
    old = time.time() - 100  # Not so young that it could change unseen.
    for path in folder.rglob("*"):
        os.utime(path, (old, old), follow_symlinks=False)
    time.sleep(2.1)  # Nor may its inode be.
    return folder


def submit_code(home, name, *command):
    return home.dtrain("submit", f"--name={name}", "--sync-mode=local", "--sync-source=code", "--",
                       *(command or ["./run"]))


def test_of_a_folder_only_what_changed_is_read_again(home, code):
    assert uploaded(submit_code(home, "a"))[0] == "201"
    assert uploaded(submit_code(home, "b"))[0] == "0"
    (code / "deep" / "f7").write_text("new\n")
    (code / "deep" / "f8").unlink()
    assert uploaded(submit_code(home, "c", "sh", "-c", "cat deep/f7; ls deep | wc -l; ./link")
                    ) == ("1", "4 bytes")
    home.dtrain("wait", "c")
    assert home.lines("c") == ["new", "199", "run"]
    # The same size and time, but other bytes: the inode's time tells.
    info = (code / "deep" / "f9").stat()
    (code / "deep" / "f9").write_text("8\n" * 10)
    os.utime(code / "deep" / "f9", ns=(info.st_atime_ns, info.st_mtime_ns))
    assert submit_code(home, "d", "cat", "deep/f9")
    home.dtrain("wait", "d")
    assert home.lines("d") == ["8"] * 10


def test_what_a_job_writes_harms_neither_the_store_nor_the_folder(home, code):
    submit_code(home, "a", "sh", "-c", "chmod -R u+w .; for f in deep/*; do echo bad > $f; done; rm run")
    home.dtrain("wait", "a")
    assert (code / "deep" / "f3").read_text() == "3\n" * 10 and (code / "run").exists()
    submit_code(home, "b", "cat", "deep/f3", "run")
    home.dtrain("wait", "b")
    assert home.lines("b") == ["3"] * 10 + ["#!/bin/sh", "echo run"]


def test_a_store_that_is_damaged_or_gone_is_made_good(home, code):
    submit_code(home, "a")
    store = home.folder / "cache" / "dtrain" / "code"
    objects = [path for path in (store / "objects").rglob("*") if path.is_file()]
    assert len(objects) == 201 and not any(path.stat().st_mode & 0o277 for path in objects)
    objects[0].unlink()
    objects[1].chmod(0o600)
    objects[1].write_text("")  # As a crash of the machine leaves it.
    (store / "objects" / "partial.9").write_text("half")
    assert uploaded(submit_code(home, "b"))[0] == "2"
    assert not (store / "objects" / "partial.9").exists()
    for manifest in (store / "manifests").iterdir():
        manifest.write_bytes(manifest.read_bytes()[:-30])
    assert uploaded(submit_code(home, "c"))[0] == "201"
    home.run(["rm", "-r", store])
    assert uploaded(submit_code(home, "d"))[0] == "201"
    home.dtrain("wait", "a", "b", "c", "d")


def test_the_store_forgets_what_no_folder_holds_any_more(home, code):
    submit_code(home, "a")
    for path in (code / "deep").iterdir():
        path.unlink()
    submit_code(home, "b")
    objects = home.folder / "cache" / "dtrain" / "code" / "objects"
    assert len([path for path in objects.rglob("*") if path.is_file()]) == 1


def test_the_store_forgets_a_folder_that_is_deleted(home, code):
    submit_code(home, "a")
    other = home.folder / "other"
    other.mkdir()
    (other / "run").write_bytes((code / "run").read_bytes())  # held by both
    store = home.folder / "cache" / "dtrain" / "code"
    home.run(["rm", "-r", code])
    home.dtrain("submit", "--name=b", "--sync-mode=local", f"--sync-source={other}", "--", "true")
    assert len([path for path in (store / "objects").rglob("*") if path.is_file()]) == 1
    assert len(list((store / "manifests").iterdir())) == 2  # its manifest and where it was
    home.dtrain("wait", "a", "b")


def test_what_is_ignored_follows_the_rules_of_git(home, code):
    home.run(["git", "init", "--quiet"], cwd=code)
    for path in ("a.log", "keep.log", "deep/a.log", "build/x", "deep/build", "only", "deep/only",
                 "x/y/z/tmp/f", "data/raw/1", "data/keep/2", "deep/er/own", "ä.tmp", "# odd"):
        (code / path).parent.mkdir(parents=True, exist_ok=True)
        (code / path).write_text(path)
    rules = {".": "*.log\n!keep.log\nbuild/\n/only\n**/tmp/**\ndata/*\n!data/keep\n*.tmp\n\\# odd\n",
             "deep": "!a.log\n/er/own\n"}
    for folder, text in rules.items():
        (code / folder / ".dtrainignore").write_text(text)
        (code / folder / ".gitignore").write_text(text)
    listed = home.run(["git", "-c", "core.quotePath=false", "ls-files", "-co", "--exclude-standard"],
                      cwd=code).out.splitlines()
    home.dtrain("submit", "--name=a", "--sync-mode=local", "--sync-source=code", "--wait", "--",
                "sh", "-c", "find . -path ./.git -prune -o ! -type d -print")
    mine = {line.removeprefix("./") for line in home.lines("a")}
    assert mine == {line for line in listed if not line.endswith(".dtrainignore")}


@pytest.mark.parametrize("source, word, code_of", [
    ("nothing", "nothing", EXIT_USAGE), ("code", "deep/f1", EXIT_ERROR)])
def test_code_that_cannot_be_read_is_one_line_and_leaves_nothing(home, code, source, word, code_of):
    if source == "code" and os.geteuid() == 0:
        pytest.skip("root reads everything")
    (code / "deep" / "f1").chmod(0)
    result = home.dtrain("submit", "--sync-mode=local", f"--sync-source={source}", "--", "true",
                         expect=code_of)
    assert result.err.count("\n") == 1 and word in result.err
    assert home.dtrain("list", "-o", "name").out == ""
    assert list((home.state / "dtrain" / "staging").iterdir()) == []


def test_secrets_reach_the_ranks_and_no_output(home):
    (home.folder / "env").write_text("# keys\nexport API_KEY='k e y'\nMODE=fast\n")
    secrets = home.folder / "config" / "dtrain" / "secrets"
    secrets.mkdir(parents=True)
    (secrets / "hub").write_text("HUB_TOKEN=t0ken\n")
    words = ["submit", "--name=s", "--env-file=env", "--secret=hub", "--env=MODE=slow"]
    assert "chmod" in home.dtrain(*words, "--", "true", expect=EXIT_USAGE).err
    (secrets / "hub").chmod(0o600)
    for form in ([], ["-o", "yaml"], ["-o", "json"]):
        out = home.dtrain(*words, "--dry-run", *form, "--", "true").out
        assert "t0ken" not in out and "k e y" not in out
    assert "HUB_TOKEN=***" in home.dtrain(*words, "--dry-run", "--", "true").out
    home.dtrain(*words, "--wait", "--", "sh", "-c", "echo $API_KEY $HUB_TOKEN $MODE")
    assert home.lines("s") == ["k e y t0ken slow"]
    home.dtrain("clone", "s", "--name=s2", "--wait")
    assert home.lines("s2") == ["k e y t0ken slow"]


@pytest.mark.parametrize("words, named", [
    (["--data=nobody:/data"], ["nobody", "dtrain data"]),
    (["--data=nobody"], ["--data", "/PATH"]),
    (["--data=nas://server/export/x:/data"], ["server:/export/x is not mounted", "--path=DIR"]),
    (["--data=oss://bucket/x:/data"], ["nothing is written back", "/data:ro"]),
    (["--data=oss://bucket/x:/data:ro"], ["OSS_REGION"]),
    (["--data=s3://buc ket:/data:ro"], ["s3://BUCKET/PREFIX"]),
    (["--data=ftp://host/x:/data"], ["ftp://host/x", "nas://"]),
    (["--data=nas://server/export"], ["--data", "/PATH"]),
    (["--data-dir=/no/such/folder:/data"], ["/no/such/folder"]),
    (["--data-dir=/tmp:/x", "--data-dir=/var:/x"], ["/x"]),
    (["--data-dir=/tmp:/"], ["--data-dir"]),
    (["--secret=nobody"], ["nobody"]),
    (["--env-file=/no/such"], ["/no/such"]),
    (["--sync-source=x"], ["--sync-mode"]),
    (["--sync-mode=git"], ["--sync-source"]),
    (["--sync-mode=rsync"], ["rsync", "--sync-mode=local"])], ids=str)
def test_what_is_not_there_is_refused_before_anything_starts(home, words, named):
    result = home.dtrain("submit", *words, "--", "true", expect=None)
    no_such_name = words in (["--data=nobody:/data"], ["--secret=nobody"])
    assert result.code == (EXIT_NOT_FOUND if no_such_name else EXIT_USAGE)
    assert result.err.count("\n") == 1 and all(word in result.err for word in named), result
    assert not home.state.exists()


def test_a_bad_line_of_an_env_file_is_named_without_its_text(home):
    (home.folder / "env").write_text("A=1\nt0ken\n")
    result = home.dtrain("submit", "--env-file=env", "--", "true", expect=EXIT_USAGE)
    assert "line 2" in result.err and "t0ken" not in result.err


def test_a_tensorboard_runs_beside_the_job(home):
    home.script("tensorboard", "exec sleep 600")
    home.dtrain("submit", "--name=board", "--tensorboard", "--logdir=/tmp", "--", "sleep", "600",
                env={"PATH": f"{home.folder}:{os.environ['PATH']}"})
    home.running("board")
    url = home.dtrain("tensorboard", "board").out.strip()
    assert url.startswith("http://localhost:") and url in home.dtrain("get", "board").out
    home.dtrain("delete", "board")
    until(lambda: not home.processes(), "nothing runs")
