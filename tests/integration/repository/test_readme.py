"""The README's session is typed as it stands, and its words are still what one sees."""
import json
import pathlib
import re
import socket

import pexpect

ROOT = pathlib.Path(__file__).parents[3]
README = (ROOT / "README.md").read_text()
RECORDED_ON = "debian"  # the host's name
BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)
BERT = re.search(r"^(dtrain-trainer tokenize .*?)```", README, re.DOTALL | re.MULTILINE).group(1)
SUBMITS = re.findall(r"^(dtrain submit (?:.*\\\n)*.*)$", README.replace(BERT, ""), re.MULTILINE)


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


def alike(text):
    """The text's lines without what differs from run to run and from machine to machine."""
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).replace("\r\n", "\n")
    text = re.sub(r"[^\n]*\r", "", text)  # What was drawn over.
    text = text.replace(socket.gethostname(), RECORDED_ON)
    text = re.sub(r"[^\n]* is slow: [^\n]*\n", "", text)  # On a busy machine.
    text = re.sub(r"/\S*/dtrain-trainer", "dtrain-trainer", text)
    text = re.sub(r"cpu, \w+ kernels, \d+ threads?", "cpu", text)
    text = re.sub(r"  (waiting|input) \d+%", "", text)  # Only where it is much.
    text = re.sub(r"\b(\d+[smhd])+\b", "TIME", text)
    text = re.sub(r"\d[\d,.:]*", "N", text)
    text = re.sub(r"-{2,}", "--", text)
    return [re.sub(r" {2,}", "  ", line).rstrip() for line in text.splitlines() if line.strip()]


def test_the_session_shows_on_a_terminal_exactly_what_the_readme_shows(home):
    steps = session()
    assert len(steps) >= 4
    environment = {**home.env, "PATH": f"{home.build.bin}:{home.env['PATH']}", "NO_COLOR": "1"}
    for command, shown in steps:
        child = pexpect.spawn("bash", ["-c", command], env=environment, cwd=str(home.folder),
                              dimensions=(50, 120), encoding="utf-8",
                              timeout=120 * home.build.slowness)
        child.expect(pexpect.EOF)
        child.close()
        assert alike(child.before) == alike("\n".join(shown)), f"$ {command}"


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


def test_berts_lines_end_with_words_for_the_blanks(home):
    sentence = "In the beautiful season of autumn the trees shed their leaves.\n"
    (home.folder / "corpus.txt").write_text(sentence * 400)
    (home.folder / "ds_config.json").write_text(json.dumps({
        "train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 1},
        "bf16": {"enabled": True}, "optimizer": {"type": "Adam", "params": {"lr": 1e-3}}}))
    environment = {"PATH": f"{home.build.bin}:{home.env['PATH']}"}
    lines = home.run(["bash", "-ec", BERT.replace("--steps=1000", "--steps=2")],
                     env=environment).out.splitlines()
    blanks = [line.split()[0] for line in lines[lines.index("BLANK  WORD    PROBABILITY") + 1:]]
    assert set(blanks) == {"1", "2"}
