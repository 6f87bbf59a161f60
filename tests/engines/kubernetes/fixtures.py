"""A cluster for the tests that name one: `./cluster up` brings it up for the session, unless
DTRAIN_TEST_CLUSTER names the folder of one that is up already.

Where KUBEBUILDER_ASSETS names a folder with an API server, that alone is brought up, and the tests
that need nodes are left out: those not marked `api`."""
import contextlib
import functools
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

import pytest

import harness
from harness import Engine, alone, bring

HERE = pathlib.Path(__file__).parent
BUSYBOX = "--image=localhost/busybox:1"
TRAINER = "--image=localhost/dtrain-trainer:test"
FASHION = pathlib.Path("/usr/share/datasets/fashion-mnist")

# A look starts kubectl, or dtrain, and keeps an API server busy.
until = functools.partial(harness.until, longest_pause=1)

# Stands for DeepSpeed's own launcher: reads the host file, and starts one process a slot by PDSH.
DEEPSPEED = """#!/bin/sh
for word; do case $word in --hostfile=*) file=${word#*=} ;; esac; done
hosts=$(cut -d' ' -f1 "$file" | paste -sd,)
dir=$(echo "$*" | sed -n 's/.*--checkpoint_dir //p')
exec pdsh -S -f 1024 -w "$hosts" "echo \\$(hostname) runs $(grep -c . "$file") hosts: $*, \\$MARK
  ${dir:+mkdir -p $dir; touch $dir/\\$(hostname)}"
"""

# Stands for Ray: a head to whom the others say their names, which it writes down.
RAY = r"""#!/usr/bin/perl
use IO::Socket::INET;
my $line = "@ARGV";
my ($address) = $line =~ /--address=(\S+)/;
my $head = $address && IO::Socket::INET->new(PeerAddr => $address, Timeout => 5);
exit($head ? 0 : 1) if $line =~ /^health-check/;
if ($head) { print $head `hostname`; close $head; sleep 600; exit }
my ($port) = $line =~ /--head --port=(\d+)/ or die "no head: $line";
my $listener = IO::Socket::INET->new(LocalAddr => "0.0.0.0:$port", Listen => 5) or die $!;
exit if fork;
while (my $peer = $listener->accept) {
  my $name = <$peer> or next;
  open my $joined, ">>", "/tmp/joined";
  print $joined $name;
  close $joined;
}
"""

# Only listens.
TENSORBOARD = """#!/usr/bin/perl
use IO::Socket::INET;
$SIG{TERM} = sub { exit 0 };
my $port = join(" ", @ARGV) =~ /--port=(\\d+)/ ? $1 : die "no port";
my $listener = IO::Socket::INET->new(LocalAddr => "0.0.0.0:$port", Listen => 5) or die $!;
while (my $client = $listener->accept) { close $client }
"""


class Cluster:
    def __init__(self, folder):
        self.folder = folder
        self.kubeconfig = f"{folder}/admin.kubeconfig"

    def run(self, *words):
        bring(HERE / "cluster", *words, env={"DIR": self.folder})

    def kubectl(self, *words, stdin=None):
        result = subprocess.run([f"{self.folder}/bin/kubectl", *words], text=True, input=stdin,
                                capture_output=True,
                                env={**os.environ, "KUBECONFIG": self.kubeconfig})
        assert result.returncode == 0, f"kubectl {words}: {result.stderr}"
        return result.stdout

    def errors(self):
        """What the kubelets said last that was an error."""
        return "\n".join(f"{log.stem}: {line}"
                         for log in sorted(pathlib.Path(self.folder, "log").glob("kubelet*.log"))
                         for line in re.findall("^E.*", log.read_text(errors="replace"), re.M)[-30:])


def everything_of(cluster, name, *kinds):
    return cluster.kubectl("get", ",".join(kinds), "-l", f"dtrain/job={name}", "-o", "json")


@pytest.fixture(scope="session")
def cluster():
    if kept := os.environ.get("DTRAIN_TEST_CLUSTER"):
        yield Cluster(kept)
        return
    cluster = Cluster("/tmp/dtrain-k8s")
    with alone("k8s"):
        cluster.run("down")  # of a session that was killed
        try:
            if "KUBEBUILDER_ASSETS" in os.environ:
                cluster.run("up", "0")
            else:
                cluster.run("build")
                cluster.run("up")
            yield cluster
        finally:
            cluster.run("down")


@pytest.fixture(scope="session")
def trainer_image(cluster, build):
    """The image of the Dockerfile on every node, with Fashion-MNIST in /data where the machine
    has it, and stand-ins for deepspeed, ray and tensorboard."""
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder, "root")
        (root / "usr/local/bin").mkdir(parents=True)
        for name, text in ("deepspeed", DEEPSPEED), ("ray", RAY), ("tensorboard", TENSORBOARD):
            (root / "usr/local/bin" / name).write_text(text)
            (root / "usr/local/bin" / name).chmod(0o755)
        if FASHION.is_dir():
            shutil.copytree(FASHION, root / "data")
        subprocess.run([HERE / "trainer-image", f"{folder}/image.tar", build.bin, root],
                       check=True)
        cluster.run("load", f"{folder}/image.tar")
    return TRAINER


@pytest.fixture(scope="session")
def namespaces(cluster):
    """Those that the conformance suite uses."""
    for name in ("team-a", "team-b"):
        cluster.kubectl("apply", "-f", "-", stdin=f"{{apiVersion: v1, kind: Namespace, metadata: {{name: {name}}}}}")


@pytest.fixture
def kube(home, cluster):
    """A home whose dtrain speaks to the cluster; the jobs that it submitted are deleted at the
    end, and no others: a kept cluster may have other users."""
    home.env.update(KUBECONFIG=cluster.kubeconfig, DTRAIN_BACKEND="kubernetes")
    submitted = set()
    run = home.run

    def run_and_note(command, **options):
        submitted.update(str(word)[len("--name="):] for word in command
                         if str(word).startswith("--name="))
        # A kubelet that could not start a container looks again only after 10 to 15 s, and a cluster
        # on two cores gives it reason to.
        options.setdefault("seconds", 180)
        try:
            result = run(command, **options)
        except subprocess.TimeoutExpired:
            print(cluster.kubectl("get", "pods,events", "-A", "-o", "wide"))
            print(cluster.errors())
            raise
        submitted.update(re.findall(r"^job/(\S+) submitted$", result.out, re.M))
        return result

    home.run = run_and_note
    yield home
    for job in home.dtrain("list", "-A", "-o", "json").json():
        if job["name"] in submitted:
            home.dtrain("delete", job["name"], "-n", job["namespace"], "--ignore-not-found")


@pytest.fixture
def kubernetes(kube, namespaces, cluster):
    """For the conformance suite."""
    @contextlib.contextmanager
    def whole_restarts():
        """By JobSet, whose controller runs meanwhile: a Job replaces the failed rank alone."""
        cluster.run("start-jobset")
        try:
            yield ("--api=jobset",)
        finally:
            engine.dtrain("delete", "--all", expect=None)
            until(lambda: not cluster.kubectl("get", "service,pod", "-o", "name", "-l",
                                              "dtrain/job"), "all is gone", 60)
            cluster.run("stop-jobset")

    engine = Engine(kube, ("--backend=kubernetes",), (BUSYBOX,), whole_restarts)
    return engine
