"""What a rank wrote in its Pod, brought back by tar over exec."""
import os

from engines.kubernetes.fixtures import BUSYBOX, until
from harness import EXIT_ENGINE, EXIT_NOT_FOUND


def test_what_a_rank_wrote_is_copied_while_its_pod_runs(kube):
    kube.submit("wrote", "sh", "-c",
                "mkdir -p /tmp/out/deep; echo $RANK >/tmp/out/rank; ln -s rank /tmp/out/link; "
                "ln -s /etc/passwd /tmp/out/away; "
                "head -c 5000000 /dev/urandom >/tmp/out/deep/large; md5sum </tmp/out/deep/large; "
                "until [ -e /tmp/end ]; do sleep 0.1; done", flags=[BUSYBOX, "--workers=2"])
    until(lambda: all(kube.lines("wrote", "-i", f"worker-{rank}") for rank in (0, 1)), "both have written")
    here = kube.folder / "here"
    here.mkdir()
    result = kube.dtrain("cp", "wrote/worker-1:/tmp/out", here)
    assert "away" in result.err
    assert (here / "out/rank").read_text() == "1\n" and os.readlink(here / "out/link") == "rank"
    large = kube.run(["md5sum"], stdin=(here / "out/deep/large").read_bytes()).out
    assert kube.lines("wrote", "-i", "worker-1") == [large.rstrip("\n")]
    kube.dtrain("cp", "wrote:tmp/out/rank", here / "first")  # From where the command is started.
    assert (here / "first").read_text() == "0\n"
    result = kube.dtrain("cp", "wrote:/none", here, expect=EXIT_NOT_FOUND)
    assert "/none" in result.err and result.err.count("\n") == 1
    for rank in 0, 1:
        kube.dtrain("exec", "wrote", "-i", f"worker-{rank}", "--", "touch", "/tmp/end")
    kube.wait_for_end("wrote", 0)
    result = kube.dtrain("cp", "wrote:/tmp/out", here, expect=EXIT_ENGINE)
    assert "not running" in result.err and "--data" in result.err and result.err.count("\n") == 1
    assert sorted(os.listdir(here)) == ["first", "out"]
