"""Templates that a user copies, changes and uses."""
import re

import yaml

import pytest

from harness import EXIT_NOT_FOUND, EXIT_USAGE, until

KUBERNETES = ["submit", "-b", "kubernetes", "--image=x", "--name=t", "--dry-run"]


@pytest.fixture
def mine(home):
    """A folder with a copy of the local backend's template."""
    home.dtrain("template", "copy", "local/job", "mine")
    return home.folder / "mine"


def change(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_a_copy_as_it_is_changes_nothing(home):
    for backend in ("local", "kubernetes"):
        words = [*KUBERNETES, "-b", backend, "--workers=2", "-e", "A=b: c", "--", "true"]
        before = home.dtrain(*words).out
        home.dtrain("template", "copy", backend, "all")
        after = home.dtrain(*words[:-2], "--template=all", "--", "true").out
        # The ConfigMap keeps what was submitted, the flag too.
        assert re.sub(rf"\n *templates:\n *- {home.folder}/all(?=\n)", "", after) == before


def test_a_partial_is_one_small_file_to_change(home):
    home.dtrain("template", "copy", "kubernetes/container", "mine")
    change(home.folder / "mine/kubernetes/container.yaml", "- name: main\n",
           "- name: main\n  tty: {{tty}}\n")
    out = home.dtrain(*KUBERNETES, "--template=mine", "--set=tty=true", "--", "true").out
    job = next(yaml.safe_load_all(out))
    assert job["spec"]["template"]["spec"]["containers"][0]["tty"] is True
    assert "kubernetes/container.yaml" in home.dtrain("template", "list").out


def test_a_changed_template_is_what_runs(home, mine):
    change(mine / "local" / "job.yaml", "env:\n", "env:\n  - {{entry}}\n")
    home.dtrain("submit", "--name=own", "--template=mine", "--set=entry=FROM_SET=a '$x' \"q\"", "--wait",
                "--", "sh", "-c", 'echo "$FROM_SET"')
    assert home.lines("own") == ["a '$x' \"q\""]
    (mine / "local" / "job.yaml").rename(home.folder / "job.yaml")
    result = home.dtrain("clone", "own", expect=EXIT_USAGE)
    assert str(mine) in result.err, "clone makes the job from the same template"
    words = ["submit", "--template=job.yaml", "--set=entry=A=1", "--dry-run", "--", "true"]
    assert yaml.safe_load(home.dtrain(*words).out)["env"] == ["A=1"]


def test_a_job_is_scaled_from_the_template_that_it_was_made_from(home, mine):
    change(mine / "local" / "job.yaml", "env:\n", "env:\n  - {{entry}}\n")
    home.dtrain("submit", "--name=grow", "--workers=1", "--min-workers=1", "--max-workers=2",
                "--template=mine", "--set=entry=FROM_SET=then", "--", "sh", "-c",
                'echo "$FROM_SET"; exec sleep 600')
    change(mine / "local" / "job.yaml", "- {{entry}}", "- FROM_SET=now")
    home.dtrain("template", "copy", "local", "config/dtrain/templates")
    home.running("grow")
    home.dtrain("scale", "grow", "--workers=2")
    until(lambda: len(home.running("grow")["instances"]) == 2, "the new worker runs")
    until(lambda: home.lines("grow", "-i", "worker-1") == ["then"], "the new worker has it too")
    home.dtrain("delete", "grow")


def test_templates_beside_the_settings_hold_for_every_job_and_a_flag_wins(home):
    home.dtrain("template", "copy", "local", "config/dtrain/templates")
    change(home.folder / "config/dtrain/templates/local/job.yaml", "env:\n", "env:\n  - OWN=1\n")
    assert str(home.folder / "config") in home.dtrain("template", "list").out
    plan = ["submit", "--dry-run", "--", "true"]
    assert yaml.safe_load(home.dtrain(*plan).out)["env"] == ["OWN=1"]
    home.dtrain("template", "copy", "local", "mine")
    assert not yaml.safe_load(home.dtrain(*plan[:-2], "--template=mine", "--", "true").out)["env"]


@pytest.mark.parametrize("old, new, words", [
    ("env:\n", "env:\n  - {{nobody}}\n", ["job.yaml:", "{{nobody}}"]),
    ("env:\n", "env:\n{{#open}}\n", ["job.yaml:", "{{#open}}", "not closed"]),
    ("env:\n", "env:\n  - '{{name}}'\n", ["job.yaml:", "{{name}}", "quotes"]),
    ("name: {{name}}", "name: other", ["job.yaml: ", "name must stay"]),
    ("maxRestarts: {{max_restarts}}\n", "", ["job.yaml: ", "maxRestarts"]),
    ("{{#ranks}}", "{{^ranks}}", ["job.yaml"]),
])
def test_a_template_that_is_wrong_is_one_line_and_starts_nothing(home, mine, old, new, words):
    change(mine / "local" / "job.yaml", old, new)
    result = home.dtrain("submit", "--template=mine", "--", "true", expect=EXIT_USAGE)
    assert result.err.count("\n") == 1 and all(word in result.err for word in words), result.err
    assert home.dtrain("list", "-o", "name").out == ""


@pytest.mark.parametrize("flags, word", [
    (["--template=none"], "none"), (["--template=."], "template copy"),
    (["--template=bytes.yaml"], "bytes.yaml"), (["--set=a=b"], "--template"),
    (["--template=mine", "--set=a=b"], "{{a}}"), (["--template=mine", "--set=a"], "KEY=VALUE"),
])
def test_templates_and_values_of_no_use_are_refused(home, mine, flags, word):
    (home.folder / "bytes.yaml").write_bytes(b"\xff\x00")
    result = home.dtrain("submit", *flags, "--dry-run", "--", "true", expect=EXIT_USAGE)
    assert result.err.count("\n") == 1 and word in result.err


def test_a_copy_overwrites_nothing_unless_told(home, mine):
    (mine / "local" / "job.yaml").write_text("mine")
    result = home.dtrain("template", "copy", "local", "mine", expect=EXIT_USAGE)
    assert "--replace" in result.err and (mine / "local" / "job.yaml").read_text() == "mine"
    home.dtrain("template", "copy", "local", "mine", "--replace")
    assert "{{name}}" in (mine / "local" / "job.yaml").read_text()
    home.dtrain("template", "copy", "no/such", "mine", expect=EXIT_NOT_FOUND)
    home.dtrain("template", "copy", "launchers/ssh.sh", "mine", expect=EXIT_USAGE)


def test_labels_that_list_and_delete_go_by_cannot_be_lost(home):
    home.dtrain("template", "copy", "kubernetes/job", "mine")
    change(home.folder / "mine/kubernetes/job.yaml", "\n    app.kubernetes.io/managed-by: dtrain", "")
    result = home.dtrain(*KUBERNETES, "--template=mine", "--", "true", expect=EXIT_USAGE)
    assert "managed-by" in result.err and "mine/kubernetes/job.yaml" in result.err


def test_a_variable_that_no_job_has_is_named_even_where_this_job_does_not_look(home, mine):
    section = "{{#launcher}}\nlauncherSlots: {{slots}}\n"
    change(mine / "local" / "job.yaml", section, section + "note: {{slotz}}\n")
    words = ["submit", "--template=mine", "--dry-run", "--", "true"]
    result = home.dtrain(*words, expect=EXIT_USAGE)
    assert "job.yaml:" in result.err and "{{slotz}}" in result.err and "{{slots}}?" in result.err
    assert result.err.count("\n") == 1
    change(mine / "local" / "job.yaml", "{{slotz}}", "{{team}}")
    assert "--set=team=VALUE" in home.dtrain(*words, expect=EXIT_USAGE).err
    home.dtrain(*words[:2], "--set=team=a", *words[2:])
