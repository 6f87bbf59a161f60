"""The gate, on stages that are scripts: what it looks at again, what it leaves out, and what it says at
its end."""
import datetime
import json
import pathlib
import re
import shutil

import pytest

import debts
import reach
from harness import PYTHON

TESTS = pathlib.Path(__file__).resolve().parents[2]


def told(test, **more):
    line = json.dumps({"by": "pytest", "test": test, "when": "call", "first": f"{test}.py:1: no",
                       "text": "no", **more})
    return f"""cat >>"$DTRAIN_TEST_RECORD/failed.jsonl" <<'END'\n{line}\nEND\ncode=9\n"""


def looked(test, *passed):
    lines = "".join(json.dumps({"test": test, "passed": each}) + "\n" for each in passed)
    return f"""[ -z "$DTRAIN_TEST_AGAIN" ] || cat >>"$DTRAIN_TEST_RECORD/again.jsonl" <<'END'
{lines}END
"""


class Gate:
    """A tree of its own with the gate's programs, and stages that are scripts."""

    def __init__(self, home):
        self.home = home
        self.tree = home.folder / "tree"
        (self.tree / "tests").mkdir(parents=True)
        for name in ("gate.py", "reach.py", "debts.py"):
            shutil.copy(TESTS / name, self.tree / "tests")

    def stages(self, **stages):
        cases = "".join(f"kind-{name.replace('_', '-')})\n{script}\n;;\n"
                        for name, script in stages.items())
        self.home.script("tree/dev", f'code=0\ncase $1-$2 in\n{cases}esac\nexit $code')

    def call(self, *words, env=None):
        return self.home.run([PYTHON, self.tree / "tests/gate.py", *words], expect=None, env=env)

    def __call__(self, env=None, verb="run", **stages):
        """Runs stages; gives the exit code, and what was said from the table on."""
        self.stages(**stages)
        result = self.call(verb, *stages, env=env)
        assert "\n  builds " in result.out, str(result)
        return result.code, re.sub(" +[0-9]+ s  ", " ", result.out.partition("\n  builds ")[2])

    def git(self, *words):
        return self.home.run(["git", "-c", "user.name=t", "-c", "user.email=t@example.org", *words],
                             cwd=self.tree).out.strip()

    def commit(self, **files):
        """Files by their paths, "/" said as "__"; gives the commit."""
        if not (self.tree / ".git").exists():
            self.git("init", "--quiet", "--initial-branch=main")
            (self.tree / ".gitignore").write_text("/build/\n__pycache__/\n")
        for name, text in files.items():
            path = self.tree / name.replace("__", "/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        self.git("add", ".")
        self.git("commit", "--quiet", "-m", "a change")
        return self.git("rev-parse", "HEAD")


@pytest.fixture
def gate(home):
    return Gate(home)


def test_what_passes_three_times_alone_flaked(gate):
    code, said = gate(one=told("a") + looked("a", True, True, True), two="")
    assert code == 0, said
    assert said.endswith("""
  one passed, 1 flaked
  two passed

FLAKED: failed beside others, then passed 3 times alone. A debt, not a pass.
  one         tests/a
              a.py:1: no

passed, 1 flaked
""")
    fields = (gate.tree / "build/tests/flakes.tsv").read_text().split("\t")
    assert fields[2:4] == ["one", "a"]
    assert (gate.tree / fields[6].strip()).read_text() == "no"
    today = str(datetime.date.today())
    assert debts.read(gate.tree / "tests/flakes.tsv") == {("one", "a"): [today, today, 1, "a.py:1: no"]}


def test_an_abort_of_a_peers_program_is_no_crash_of_ours(gate):
    text = "worker-1 ended with signal 6\n  terminate called without an active exception"
    code, said = gate(one=told("a", text=text, peer=True) + looked("a", True, True, True))
    assert code == 0, said


@pytest.mark.parametrize("looks", [(True, True), (True, True, False), ()])
def test_what_fails_again_is_a_failure(gate, looks):
    code, said = gate(one=told("a") + looked("a", *looks), two="")
    assert code == 1
    assert "  one FAILED: 1 failed\n  two passed\n" in said
    assert said.endswith("\nFAILED\n  one         tests/a\n              a.py:1: no\n\nFAILED\n")


@pytest.mark.parametrize("more, why", [
    ({"text": "==1==ERROR: AddressSanitizer: heap-use-after-free"}, "a sanitizer's report"),
    ({"text": "left behind:\nprocess 1: x", "when": "teardown"}, "left something behind"),
    ({"text": "['/b/bin/dtrain', 'get'] exited with -11"}, "a program of ours crashed"),
    ({"text": "['/b/bin/dtrain', 'get'] exited with -6", "peer": True}, "a program of ours crashed"),
    ({"text": "terminate called without an active exception"}, "a program of ours crashed"),
    ({"when": "collect"}, "could not be collected"),
    ({"ending": "SEGFAULT", "by": "ctest"}, "its program crashed")])
def test_some_failures_get_no_second_look(gate, more, why):
    code, said = gate(one=told("a", **more) + looked("a", True, True, True))
    assert code == 1
    assert f"no second look: {why}" in said


def test_many_failures_get_no_second_look(gate):
    names = [f"t{n}" for n in range(6)]
    code, said = gate(one="".join(told(name) + looked(name, True, True, True) for name in names))
    assert code == 1
    assert "no second look for 6, more than 5, at once" in said


def test_a_stage_that_did_not_come_to_its_end_fails(gate):
    code, said = gate(one=told("a") + looked("a", True, True, True) + "code=1", two="code=77")
    assert code == 1
    assert "FAILED: ended with 1, 1 failed" in said
    assert "could not be run here" in said


def test_a_stage_that_hangs_is_ended_and_the_next_runs(gate):
    code, said = gate({"DTRAIN_STAGE_LIMIT": "1"}, two="", one="""
        echo "$$ $(date +%s) a.py::test_b" >"$DTRAIN_TEST_RECORD/running/gw0.now"
        trap : USR1; trap 'exit 1' INT; while :; do sleep 0.2; done""", three="")
    assert code == 1
    assert "FAILED: hung in a.py::test_b" in said
    assert "  three passed\n" in said


def test_a_record_that_cannot_be_read_is_a_failure(gate):
    code, said = gate(one="""echo '{"by":' >>"$DTRAIN_TEST_RECORD/failed.jsonl"; code=9""")
    assert code == 1
    assert "a line of its record cannot be read" in said


def test_what_there_is_no_time_for_is_a_failure(gate):
    code, said = gate({"DTRAIN_GATE_MINUTES": "0"}, one="")
    assert code == 1
    assert "FAILED: no time was left for it" in said


def test_a_cluster_that_does_not_come_up_is_one_line(gate):
    code, said = gate(one="".join(told(name, when="setup") for name in "abcdefgh") + """
        echo "cluster: no bridge" >"$DTRAIN_TEST_RECORD/set_up_failed" """, two="")
    assert code == 1
    assert said.endswith("""
  one FAILED: could not be set up: cluster: no bridge
  two passed

FAILED
""")


@pytest.mark.skipif(pathlib.Path("/dev/nvidiactl").exists(), reason="this machine has an NVIDIA GPU")
@pytest.mark.parametrize("verb", ["test", "bench"])
def test_where_there_is_no_gpu_that_is_one_line_and_nothing_is_compiled(gate, verb):
    shutil.copytree(TESTS / "engines", gate.tree / "tests/engines")
    shutil.copy(TESTS.parent / "dev", gate.tree)
    result = gate.home.run([gate.tree / "dev", verb, "gpu"], expect=None, env={"DTRAIN_FAKE_GPUS": ""})
    assert (result.code, result.out) == (77, "")
    assert result.err == "no NVIDIA GPU on this machine; ./dev test cuda does without\n"


# Debts.

def test_debts_are_counted_and_age(tmp_path):
    day = datetime.date(2026, 3, 1)
    path = tmp_path / "flakes.tsv"
    debts.add(path, [("local", "a.py::b", "no\n number"), ("tsan", "unit-x:y", "no")], day)
    later = day + datetime.timedelta(7)
    debts.add(path, [("local", "a.py::b", "none")], later)
    assert debts.read(path) == {
        ("local", "a.py::b"): ["2026-03-01", "2026-03-08", 2, "none"],
        ("tsan", "unit-x:y"): ["2026-03-01", "2026-03-01", 1, "no"]}
    assert debts.complaints(path, later) == []
    old = debts.complaints(path, later + datetime.timedelta(1))
    assert [line.partition(" (")[0] for line in old] == ["flakes.tsv: a.py::b", "flakes.tsv: unit-x:y"]
    debts.add(path, [("local", f"t{n}", "no") for n in range(9)], later)
    assert debts.complaints(path, later) == ["flakes.tsv: 11 tests flake, more than 10: mend some"]


def test_all_tests_are_red_while_a_debt_is_old_and_note_where_they_passed(gate):
    one = told("a") + looked("a", True, True, True)
    gate.stages(one=one)
    commit = gate.commit(**{"tests__flakes.tsv": ""})
    code, said = gate(verb="all", one=one)
    assert code == 0 and f"noted in tests/all_passed.tsv: all passed at {commit}" in said
    date, noted, tree, flaked = (gate.tree / "tests/all_passed.tsv").read_text().strip().split("\t")
    assert (noted, tree, flaked) == (commit, gate.git("rev-parse", "HEAD^{tree}"), "1 flaked")
    assert date == str(datetime.date.today())
    debts.add(gate.tree / "tests/flakes.tsv", [("one", "b", "no")], datetime.date(2020, 1, 1))
    code, said = gate(verb="all", one=one)
    assert code == 1 and "flakes.tsv: b (one) has flaked since 2020-01-01" in said
    gate(one="")  # Other runs don't judge it.


# What a change reaches.

def what_ran(gate):
    """By kind: whether it ran and passed, or why not."""
    code, said = gate(verb="gate")
    assert code == 0, said
    return dict(line.strip().split(" ", 1) for line in said.split("\n\n")[0].splitlines()[1:])


def test_a_change_runs_what_it_reaches(gate):
    gate.stages()
    commit = gate.commit(backends__slurm__a="1", trainer__b="1", new_room__c="1")
    (gate.tree / "tests/all_passed.tsv").write_text(f"2026-01-01\t{commit}\ttree\t0 flaked\n")
    nothing = what_ran(gate)
    assert {kind for kind, said in nothing.items() if said == "passed"} == {
        "unit", "local", "asan-unit", "tsan", "lint", "asan-input", "ssh"}
    assert nothing["slurm"] == "not run: the change does not reach it"
    gate.commit(backends__slurm__a="2")
    assert what_ran(gate)["slurm"] == "passed"
    assert what_ran(gate)["cuda"] == "not run: the change does not reach it"
    (gate.tree / "trainer/b").write_text("not committed")
    assert what_ran(gate)["cuda"] == "passed"
    gate.commit(new_room__c="2")
    assert what_ran(gate)["package"] == "passed"  # What no rule names reaches everything.


def test_a_change_from_nobody_knows_where_reaches_everything(gate):
    gate.commit(a="1")
    assert what_ran(gate)["slurm"] == "passed"
    (gate.tree / "tests/all_passed.tsv").write_text(f"2026-01-01\t{'1' * 40}\ttree\t0 flaked\n")
    assert what_ran(gate)["slurm"] == "passed"


def test_each_path_of_the_tree_has_a_rule_that_leads_somewhere():
    for rule in reach.RULES:
        folder, _, name = rule.rpartition("/")
        assert any(path.startswith(name) for path in
                   (each.name for each in (reach.ROOT / folder).iterdir())) or \
            rule.endswith(".tsv"), rule


def test_a_test_that_the_change_adds_or_edits_gets_no_second_look(gate):
    commit = gate.commit(**{"tests__t.py": "def test_a():\n    pass\n\n\ndef test_b():\n    pass\n",
                            "tests__u.cpp": 'TEST_CASE("one, "\n  "long") {\n}\n'})
    (gate.tree / "tests/all_passed.tsv").write_text(f"2026-01-01\t{commit}\ttree\t0 flaked\n")
    (gate.tree / "tests/t.py").write_text("def test_a():\n    pass\n\n\ndef test_b():\n    assert 1\n")
    (gate.tree / "tests/u.cpp").write_text('TEST_CASE("one, "\n  "long") {\n  CHECK(1);\n}\n')
    gate.git("mv", "tests/t.py", "tests/moved.py")
    tests = [("moved.py::test_a", {}), ("moved.py::test_b[1]", {}), ("unit-x:one, long", {"by": "ctest"})]
    code, said = gate(one="".join(told(test, **more) for test, more in tests) +
                      "".join(looked(test, True, True, True) for test, _ in tests))
    assert code == 1
    assert said.count("no second look: the change adds or edits this test") == 2
    assert "FLAKED" in said and "tests/moved.py::test_a\n" in said.partition("FLAKED")[2]


# Stress.

def test_stress_runs_a_test_alone_as_often_as_it_is_told(gate):
    busy = gate.home.folder / "busy"
    gate.home.script("stress-ng", f"touch {busy}; exec sleep 600")
    env = {"PATH": f"{gate.home.folder}:{gate.home.env['PATH']}"}
    gate.stages(local=f"""[ "$DTRAIN_TEST_LOOKS" = 3 ] || exit 1
        until [ -e {busy} ]; do sleep 0.01; done
        while read -r test; do
            for passed in true true $(sed -n "s/$test //p" passed); do
                echo "{{\\"test\\": \\"$test\\", \\"passed\\": $passed, \\"first\\": \\"no\\"}}"
            done
        done <"$DTRAIN_TEST_RECORD/again.pytest" >"$DTRAIN_TEST_RECORD/again.jsonl" """)
    (gate.tree / "passed").write_text("t.py::a true\nt.py::b false\n")
    good = gate.call("stress", "--count=3", "tests/t.py::a", env=env)
    assert good.code == 0 and "     3 of 3 passed  t.py::a\n" in good.out, str(good)
    bad = gate.call("stress", "--count=3", "tests/t.py::a", "tests/t.py::b", env=env)
    assert bad.code == 1 and "     2 of 3 passed  t.py::b\n" in bad.out, str(bad)
    usage = gate.call("stress", "--count=x", "tests/t.py", env=env)
    assert usage.code == 1 and usage.err.startswith("usage: ")
