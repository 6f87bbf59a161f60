"""Tab, pressed in real shells under a terminal."""
import re

import pexpect
import pytest

PROMPT = "ready> "
SHELLS = {
    "bash": (["--norc", "--noprofile", "-i"],
             [f"PS1='{PROMPT}'", "bind 'set bell-style none'",
              "bind 'set enable-bracketed-paste off'",
              "source <(dtrain completion bash)"]),
    "zsh": (["-f", "-i"],
            [f"PS1='{PROMPT}'; PROMPT_EOL_MARK=; unsetopt BEEP ZLE_BRACKETED_PASTE; bindkey -e",
             "autoload -Uz compinit; compinit -u -d $HOME/.zcompdump",
             "source <(dtrain completion zsh)"]),
    "fish": (["--no-config", "-i"],
             [f"function fish_prompt; printf '{PROMPT}'; end",
              "dtrain completion fish | source"]),
}


class Shell:
    """A shell in which words are typed, completed and then printed instead of run."""

    def __init__(self, home, name):
        self.seconds = 15 * home.build.slowness
        arguments, set_up = SHELLS[name]
        scratch = home.folder / "shell"  # fish leaves a file there
        scratch.mkdir()
        env = {**home.env, "TERM": "xterm", "PATH": f"{home.build.bin}:/usr/bin:/bin",
               "TMPDIR": str(scratch)}
        self.child = pexpect.spawn(name, arguments, env=env, cwd=str(home.folder),
                                   timeout=self.seconds, encoding="utf-8", codec_errors="replace",
                                   dimensions=(40, 200))
        self.count = 0
        self.after("")
        for line in set_up:
            self.after(line)

    def after(self, line):
        """Runs a line and waits for what is printed behind it."""
        self.count += 1
        # The text that is looked for does not stand in what is typed.
        self.child.send(f"{line}{';' if line else ''} printf '%s-%s\\n' end {self.count}\r")
        self.child.expect(rf"end-{self.count}\r?\n")

    def complete(self, typed, more=""):
        """The words of the line after Tab, and after typing on."""
        self.count += 1
        self.child.send(f"{typed}\t{more}")
        # To the start of the line, where the words become arguments of printf.
        self.child.send(f"\x01printf '<%s>' words-{self.count} \x05 last\r")
        self.child.expect(rf"<words-{self.count}>((<[^>\r\n]*>)*)<last>")
        words = re.findall(r"<([^>]*)>", self.child.match.group(1))
        self.after("")
        return words

    def close(self):
        self.child.close(force=True)


@pytest.fixture(params=sorted(SHELLS))
def shell(home, request):
    home.dtrain("submit", "--name=fashion-small", "--wait", "--", "true")
    home.dtrain("submit", "--name=other", "--wait", "--", "true")
    shell = Shell(home, request.param)
    yield shell
    shell.close()


def test_tab_completes_commands_flags_values_and_names(shell):
    assert shell.complete("dtrain sub") == ["dtrain", "submit"]
    assert shell.complete("dtrain submit --dry") == ["dtrain", "submit", "--dry-run"]
    assert shell.complete("dtrain submit --backen", more="local") == ["dtrain", "submit",
                                                                     "--backend=local"]
    assert shell.complete("dtrain get fash") == ["dtrain", "get", "fashion-small"]
    assert shell.complete("dtrain cp fash", more="ckpt .") == ["dtrain", "cp", "fashion-small:ckpt", "."]
    assert shell.complete("dtrain cp fashion-small:ckpt . -i work")[-1] == "worker-0"
    assert shell.complete("dtrain logs fashion-small -i work") == [
        "dtrain", "logs", "fashion-small", "-i", "worker-0"]
    assert shell.complete("dtrain get other --output=ya") == [
        "dtrain", "get", "other", "--output=yaml"]
    assert shell.complete("dtrain completion zs") == ["dtrain", "completion", "zsh"]


def test_tab_completes_files_where_a_file_is_meant(home, shell):
    (home.folder / "unusual-job.yaml").write_text("name: a\n")
    assert shell.complete("dtrain submit -f unus") == ["dtrain", "submit", "-f",
                                                       "unusual-job.yaml"]


def test_tab_says_nothing_where_nothing_fits(shell):
    assert shell.complete("dtrain get no-such-job-") == ["dtrain", "get", "no-such-job-"]
