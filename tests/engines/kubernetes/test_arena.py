"""Lines of Arena's own documentation, as jobs of a real cluster."""
import re

from integration.cli.test_arena import TAKEN, runs_anywhere, that_ends

AT_ONCE = 3  # As many as the nodes have GPUs for: else two gangs may each hold half of them.


def test_lines_that_ask_for_nothing_of_another_cluster_run_here(kube, trainer_image):
    image = trainer_image.removeprefix("--image=")
    (kube.folder / "test-config.json").write_text("{}\n")
    lines = [line for line in TAKEN if runs_anywhere(line)]
    assert len(lines) > 8
    names = []
    for index, line in enumerate(lines):
        words = [re.sub("registry/image|centos:7", image, word) for word in that_ends(line)]
        names.append(f"line{index}")
        kube.dtrain(*words[:-1], f"--name={names[-1]}", words[-1])
        if len(names) == AT_ONCE or line == lines[-1]:
            kube.dtrain("wait", *names, seconds=180)
            kube.dtrain("delete", *names)
            names = []
