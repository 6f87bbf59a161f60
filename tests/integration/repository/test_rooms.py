"""Which room may know what."""
import pathlib
import re

ROOT = pathlib.Path(__file__).parents[3]

# How a text would name the engine of that folder of backends/. A new engine adds its own words.
NAMES = {
    "kubernetes": r"(?i)kube(?!flow)|\bk8s",
    "local": r'"local"|(?<!\.)\blocal/|\blocal (backend|engine)\b|\b(backend|engine|-b|on)[ =:]+local\b',
    "slurm": r"(?i)slurm",
    "ssh": r"\bssh (backend|engine)\b|\b(backend|engine|-b|on)[ =:]+ssh\b|\bssh::|backends/ssh",
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
