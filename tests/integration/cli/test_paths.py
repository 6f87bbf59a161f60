"""Paths that do not begin with / count from where `dtrain submit` was called, however they are
given."""
import yaml

from harness import EXIT_USAGE, needs_mounts


def where(home, name):
    home.dtrain("wait", name)
    return home.lines(name, "-i", "worker-0")


def test_the_working_folder_counts_from_here(home):
    (home.folder / "sub/deep").mkdir(parents=True)
    home.submit("flag", "pwd", flags=["--working-dir=sub"])
    assert where(home, "flag") == [str(home.folder / "sub")]
    home.submit("up", "pwd", flags=["--working-dir=.."], cwd=home.folder / "sub/deep")
    assert where(home, "up") == [str(home.folder / "sub")]
    (home.folder / "job.yaml").write_text("name: file\nworkingDir: sub\ncommand: [pwd]\n")
    home.dtrain("submit", "-f", "job.yaml")
    assert where(home, "file") == [str(home.folder / "sub")]


@needs_mounts
def test_folders_and_files_to_mount_count_from_here(home):
    (home.folder / "d1").mkdir()
    (home.folder / "d1/x").write_text("data\n")
    (home.folder / "c.yaml").write_text("settings\n")
    home.submit("mounts", "cat", "/data/x", "/etc/c.yaml",
                flags=["--data-dir=d1:/data:ro", "--config-file=c.yaml:/etc/c.yaml"])
    assert where(home, "mounts") == ["data", "settings"]


def test_a_clone_starts_in_the_folder_that_the_job_was_submitted_from(home):
    folder = home.folder / "project"
    folder.mkdir()
    (folder / "train.sh").write_text("pwd\n")
    home.submit("first", "sh", "train.sh", cwd=folder)
    home.dtrain("clone", "first", "--name=second")
    assert where(home, "first") == where(home, "second") == [str(folder)]


def test_a_job_file_of_a_dry_run_holds_no_made_up_name_and_works_twice(home):
    text = home.dtrain("submit", "--dry-run", "-o", "yaml", "--", "true").out
    assert not {"name", "workingDir"} & set(yaml.safe_load(text))
    for _ in range(2):
        home.dtrain("submit", "-f", "-", stdin=text)
    assert len(home.dtrain("list", "-o", "name").out.split()) == 2
    for name in home.dtrain("list", "-o", "name").out.split():
        home.dtrain("wait", name)


def test_a_folder_of_a_container_or_node_is_said_from_the_root(home):
    for flag in ("--working-dir=sub", "--data-dir=d1:/data"):
        result = home.dtrain("submit", "-b", "kubernetes", "--image=x", flag, "--dry-run", "--",
                             "true", expect=EXIT_USAGE)
        assert flag in result.err and "must be an absolute path" in result.err
