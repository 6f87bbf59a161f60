"""What a change reaches: which kinds of tests, and which tests it adds or edits.

A change is all that differs from the last commit at which `./dev test all` passed (tests/all_passed.tsv),
whatever is not committed included. Where that commit is not known, a change reaches everything.
"""
import ast
import functools
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[1]
PASSED = "tests/all_passed.tsv"  # date, commit, tree, what flaked: a line a run of all, the newest last
OWN = (PASSED, "tests/flakes.tsv")  # what the runs themselves write

# The kinds of tests, beside those that always run, that what lies at a path may break. The longest
# path that fits counts; what fits none reaches every kind.
RULES = {
    "LICENSE": (), "README.md": (), "CONTRIBUTING.md": (), ".clang-format": (), ".clang-tidy": (),
    ".editorconfig": (), ".gitignore": (),
    "Dockerfile": ("package",), "completions/": ("package",), "man/": ("package",),
    "backends/kubernetes/": ("kubernetes",), "templates/kubernetes/": ("kubernetes",),
    "backends/local/": (), "backends/local/gpu_health": ("ssh",), "templates/local/": (),
    "backends/batch/": ("slurm",), "templates/batch/": ("slurm",),
    "backends/slurm/": ("slurm",), "templates/slurm/": ("slurm",),
    "backends/ssh/": ("ssh",), "templates/ssh/": ("ssh",), "backends/supervised/": ("ssh",),
    "cmake/Cuda.cmake": ("cuda",), "cmake/cuda-": ("cuda",),
    "trainer/": ("cuda", "fuzz", "peers"),
    "trainer/collectives/nccl/": ("cuda",), "trainer/device/cuda/": ("cuda",),
    "tests/all_passed.tsv": (), "tests/flakes.tsv": (),
    "tests/bare/": ("bare",), "tests/package/": ("package",), "tests/fuzz/": ("fuzz",),
    "tests/bench/": (), "tests/bench/peers/": ("peers",),
    "tests/cuda_on_cpu/": ("cuda",), "tests/unit/cuda/": ("cuda",),
    "tests/engines/cuda/": ("cuda",), "tests/engines/gpu/": ("gpu",),
    "tests/engines/kubernetes/": ("kubernetes",), "tests/engines/kueue/": ("kueue",),
    "tests/engines/slurm/": ("slurm",), "tests/engines/ssh/": ("ssh",),
    "tests/engines/slurm-versions/": ("slurm-versions",),
    "tests/conformance/": ("kubernetes", "slurm", "ssh"),
    "tests/integration/": (), "tests/integration/programs/": ("peers",),
    "tests/integration/trainer/test_tokenizers.py": ("peers",),
    "tests/integration/trainer/test_bert.py": ("peers",),
    "tests/lint/": (), "tests/unit/": (),
}


def git(*words):
    """What git says, or None where it fails, as outside of a repository."""
    result = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)
    return result.stdout if result.returncode == 0 else None


@functools.cache
def last_passed():
    """The newest run of all tests that this commit has in its history, as its fields, or None."""
    path = ROOT / PASSED
    for line in reversed(path.read_text().splitlines() if path.exists() else []):
        fields = line.split("\t")
        if len(fields) == 4 and git("merge-base", "--is-ancestor", fields[1], "HEAD") is not None:
            return fields
    return None


def note_passed(date, flaked):
    """Adds this commit to the runs of all tests that passed; not where files differ from it."""
    status = git("status", "--porcelain")
    if status is None or any(line[3:] not in OWN for line in status.splitlines()):
        return None
    commit, tree = git("rev-parse", "HEAD", "HEAD^{tree}").split()
    with open(ROOT / PASSED, "a", encoding="utf-8") as file:
        print(date, commit, tree, flaked, sep="\t", file=file)
    return commit


@functools.cache
def changed_files():
    """Their paths, or None where that can't be told."""
    base = last_passed()
    if base is None:
        return None
    told = git("diff", "--name-only", "--no-renames", base[1])
    new = git("ls-files", "--others", "--exclude-standard")
    return None if told is None or new is None else told.splitlines() + new.splitlines()


def kinds_of(path):
    """The kinds that a file reaches, or None for all."""
    fit = [rule for rule in RULES
           if path == rule or path.startswith(rule) and rule.endswith(("/", "-"))]
    return RULES[max(fit, key=len)] if fit else None


def reaches(kind):
    files = changed_files()
    return files is None or any((kinds := kinds_of(file)) is None or kind in kinds for file in files)


# Tests that a change adds or edits.

def python_tests(text):
    """The source of each test, by its name."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return {}
    return {node.name: ast.get_source_segment(text, node) + "".join(map(ast.dump, node.decorator_list))
            for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


def doctest_cases(text):
    """The source of each case, by its name."""
    cases = {}
    for block in re.split(r"^(?=TEST_CASE)", text, flags=re.M)[1:]:
        if name := re.match(r'TEST_CASE\w*\(((?:\s*"(?:[^"\\]|\\.)*")+)', block):
            parts = re.findall(r'"((?:[^"\\]|\\.)*)"', name[1])
            cases[re.sub(r"\\(.)", r"\1", "".join(parts))] = block.partition("\n}\n")[0]
    return cases


@functools.cache
def edited_tests():
    """Of pytest as FILE::NAME, of doctest by the case's name."""
    base, edited = last_passed(), set()
    moved = dict(line.split("\t")[:0:-1] for line in (
        git("diff", "--name-status", "--find-renames", "--diff-filter=R", base[1]) or "").splitlines()) \
        if base else {}  # new path -> old path
    for path in changed_files() or []:
        read = {".py": python_tests, ".cpp": doctest_cases}.get(pathlib.Path(path).suffix)
        if read and path.startswith("tests/") and (ROOT / path).exists():
            before = read(git("show", f"{base[1]}:{moved.get(path, path)}") or "")
            edited |= {f"{path}::{name}" if read is python_tests else name
                       for name, text in read((ROOT / path).read_text()).items()
                       if before.get(name) != text}
    return edited


def is_edited(by, test):
    """Whether the change adds or edits a test, by the name that pytest or ctest has for it."""
    name = f"tests/{test.partition('[')[0]}" if by == "pytest" else test.partition(":")[2]
    return name in edited_tests()
