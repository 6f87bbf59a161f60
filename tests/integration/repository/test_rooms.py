"""Which room may know what."""
import pathlib
import re

ROOT = pathlib.Path(__file__).parents[3]

# How a text would name the engine of that folder of backends/. A new engine adds its own words.
NAMES = {
    "kubernetes": r"(?i)kube(?!flow)|\bk8s",
    "local": r'"local"|(?<!\.)\blocal/|\blocal (and|backend|engine)\b|\b(backend|engine|-b|on)[ =:]+local\b',
    "slurm": r"(?i)slurm",
    "ssh": r"\bssh (backend|engine|jobs?)\b|\b(backend|engine|-b|on)[ =:]+ssh\b|\bssh::|backends/ssh",
}
# A name that is another thing's too: Arena's word for a folder that is sent as code.
OTHERS = ['inline constexpr const char* k_sync_folder = "local";',
          "add --sync-mode=git or --sync-mode=local"]


def test_no_room_but_an_engines_own_names_an_engine():
    engines = {path.name for path in (ROOT / "backends").iterdir() if path.is_dir()}
    assert engines - {"batch", "support", "supervised"} == set(NAMES)
    found = []
    for room in ("cli", "submit", "backends/batch", "backends/supervised", "backends/support"):
        for path in sorted((ROOT / room).rglob("*.[ch]*")):
            for number, line in enumerate(path.read_text().splitlines(), 1):
                if any(other in line for other in OTHERS):
                    continue
                found += [f"{path.relative_to(ROOT)}:{number}: {name}: {line.strip()}"
                          for name, words in NAMES.items() if re.search(words, line)]
    assert not found, "\n".join(found)


# The seam between jobs and engines, which each engine implements.
SEAM = ["backends/backend.h", "backends/engine.h", "backends/job_", "backends/plan.h"]

# What the files of a room may include, by the beginnings of its paths; of several rooms, the longest counts.
BELOW = {
    "submit/": ["submit/"],
    "backends/": ["submit/", "backends/"],
    "cli/": ["submit/", "backends/engine.h", "backends/job_", "backends/plan.h", "backends/support/", "cli/"],
    "trainer/": ["submit/options/", "submit/errors.h", "trainer/", "tests/cuda_on_cpu/"],
    "backends/support/": ["submit/", "backends/job_", "backends/plan.h", "backends/support/"],
    "backends/supervised/": ["submit/", *SEAM, "backends/support/", "backends/supervised/"],
    "backends/batch/": ["submit/", *SEAM, "backends/support/", "backends/batch/"],
    "backends/local/": ["submit/", *SEAM, "backends/support/", "backends/supervised/", "backends/local/"],
    # A host that ssh reaches has its GPUs checked as this machine has.
    "backends/ssh/": ["submit/", *SEAM, "backends/support/", "backends/supervised/", "backends/ssh/",
                      "backends/local/gpu_health.h", "backends/local/gpu_measurement.h"],
    "backends/slurm/": ["submit/", *SEAM, "backends/support/", "backends/batch/", "backends/slurm/"],
    "backends/kubernetes/": ["submit/", *SEAM, "backends/support/", "backends/kubernetes/"],
}


def test_a_room_includes_only_those_below_it():
    found = []
    for top in ("cli", "submit", "backends", "trainer"):
        for path in sorted((ROOT / top).rglob("*.[ch]*")):
            name = str(path.relative_to(ROOT))
            may = BELOW[max((room for room in BELOW if name.startswith(room)), key=len)]
            found += [f"{name} includes {header}"
                      for header in re.findall(r'^#include "([a-z]+/[^"]+\.h)"', path.read_text(), re.M)
                      if not header.startswith(tuple(may))]
    assert not found, "\n".join(found)
