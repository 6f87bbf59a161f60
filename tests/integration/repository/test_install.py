"""What `./dev install` puts where."""
import idx_data


def test_an_installed_tree_works_by_itself(home):
    prefix = home.folder / "prefix"
    home.run(["cmake", "--install", home.build.folder, "--prefix", prefix])
    data = idx_data.write(home.folder / "data", train=256, test=64)
    result = home.run([prefix / "bin" / "dtrain", "submit", "--workers=2", "--wait", "--",
                       f"--data={data}", "--epochs=1"])
    assert "held-out accuracy" in result.out
    share = prefix / "share"
    for path in ("man/man1/dtrain.1", "man/man1/dtrain-submit.1", "man/man1/dtrain-trainer.1",
                 "man/man7/dtrain-environment.7", "man/man7/dtrain-arena.7", "bash-completion/completions/dtrain",
                 "zsh/site-functions/_dtrain", "fish/vendor_completions.d/dtrain.fish",
                 "dtrain/templates/local/job.yaml"):
        assert (share / path).exists(), path
