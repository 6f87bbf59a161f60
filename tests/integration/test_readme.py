"""The README's session is typed as it stands, and its words are still what one sees."""
import pathlib
import re

ROOT = pathlib.Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
RECORDED_ON = "debian"  # the host's name
BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)
SUBMITS = re.findall(r"^(dtrain submit (?:.*\\\n)*.*)$", README, re.MULTILINE)


def session():
    """[(command, [line shown])] of the README's console blocks."""
    steps = []
    for block in BLOCK.findall(README):
        for line in block.splitlines():
            if line.startswith("$ "):
                steps.append((line[2:], []))
            elif line.strip():
                steps[-1][1].append(line)
    return steps


def words_of(lines):
    """Each line's words that are alike in every run."""
    return {word for line in lines for word in re.findall(r"[A-Za-z(][A-Za-z()_-]{3,}", line)}


def test_the_session_still_runs_and_shows_what_the_readme_shows(home):
    steps = session()
    assert len(steps) >= 4
    environment = {"PATH": f"{home.build.bin}:{home.env['PATH']}"}
    for command, shown in steps:
        result = home.run(["bash", "-c", command], env=environment, expect=None, seconds=120)
        missing = words_of(shown) - words_of((result.out + result.err).splitlines())
        missing.discard(RECORDED_ON)
        assert not missing, f"$ {command}\nno longer shows {missing}:\n{result}"


def test_each_submit_for_a_cluster_is_one_that_is_understood(home):
    environment = {"PATH": f"{home.build.bin}:{home.env['PATH']}"}
    assert len(SUBMITS) == 2
    for command in SUBMITS:
        dry = command.replace("dtrain submit", "dtrain submit --dry-run", 1)
        plan = home.run(["bash", "-c", dry], env=environment).out
        assert "kind: Job" in plan and "completions: 3" in plan


def test_every_file_it_names_is_there():
    for target in re.findall(r"\]\(([^)]+)\)", README):
        assert (ROOT / target).exists(), target


def test_every_verb_of_dev_it_names_is_one():
    verbs = set(re.findall(r"\./dev (\w+)", README))
    help_text = (ROOT / "dev").read_text()
    assert verbs and all(re.search(rf"^  {verb}\b", help_text, re.MULTILINE) for verb in verbs)
