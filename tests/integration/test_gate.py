"""The gate, on stages that are scripts: what it looks at again, and what it says at its end."""
import json
import pathlib
import re
import shutil

import pytest

from harness import PYTHON

TESTS = pathlib.Path(__file__).resolve().parents[1]


def told(test, **more):
    line = json.dumps({"by": "pytest", "test": test, "when": "call", "first": f"{test}.py:1: no",
                       "text": "no", **more})
    return f"""cat >>"$DTRAIN_TEST_RECORD/failed.jsonl" <<'END'\n{line}\nEND\ncode=9\n"""


def looked(test, *passed):
    lines = "".join(json.dumps({"test": test, "passed": each}) + "\n" for each in passed)
    return f"""[ -z "$DTRAIN_TEST_AGAIN" ] || cat >>"$DTRAIN_TEST_RECORD/again.jsonl" <<'END'
{lines}END
"""


@pytest.fixture
def gate(home):
    """Runs stages; gives the exit code, and what was said from the table on."""
    tree = home.folder / "tree"
    (tree / "tests").mkdir(parents=True)
    shutil.copy(TESTS / "gate.py", tree / "tests")

    def run(env=None, **stages):
        cases = "".join(f"kind-{name})\n{script}\n;;\n" for name, script in stages.items())
        home.script("tree/dev", f'code=0\ncase $1-$2 in\n{cases}esac\nexit $code')
        result = home.run([PYTHON, tree / "tests/gate.py", "run", *stages], expect=None, env=env)
        assert "\n  builds " in result.out, str(result)
        return result.code, re.sub(" +[0-9]+ s  ", " ", result.out.partition("\n  builds ")[2])
    run.tree = tree
    return run


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
    assert "\tone\ta\t" in (gate.tree / "build/tests/flakes.tsv").read_text()


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
