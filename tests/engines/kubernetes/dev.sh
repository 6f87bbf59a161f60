# shellcheck shell=sh
# What ./dev has of Kubernetes: a real two-node cluster on this machine. Sourced by it.
kubernetes_packages='containerd runc containernetworking-plugins busybox-static iptables conntrack
  gcc libc6-dev openssl iproute2 procps util-linux python3-venv mmdebstrap'

engine_help() {
  cat <<'TEXT'
                         kubernetes
                                 jobs on a real two-node cluster on this machine (28 CPU minutes of
                                 building first, once a version: ./dev build kubernetes). Exit code
                                 77 where the machine cannot have one (not root, or no right to
                                 mounts, bridges, cgroups). With KUBEBUILDER_ASSETS set, what needs
                                 no nodes, against the API server there
TEXT
}

engine_in_all() { true; }

# Ends this program with 77, and says why, where the machine can't have a cluster.
kubernetes_machine() {
  [ "$(id -u)" -eq 0 ] || tests/engines/kubernetes/cluster can || exit
  # shellcheck disable=SC2086
  need $kubernetes_packages
  tests/engines/kubernetes/cluster can || exit
}

engine_build() {
  kubernetes_machine
  for part in build build-jobset build-trainjob build-s3; do tests/engines/kubernetes/cluster $part; done
}

# For the gate: 28 CPU minutes otherwise.
engine_is_compiled() { tests/engines/kubernetes/cluster built; }

engine_test() { # engine_test [PYTEST-ARGUMENTS...]
  # shellcheck disable=SC2086,SC2154 # lists of words, of dev
  need $test_packages $data_packages
  if [ -z "${KUBEBUILDER_ASSETS:-}" ]; then
    engine_build
    set -- tests/conformance --engine=kubernetes "$@"
  fi
  # shellcheck disable=SC2154
  "$python" -m pytest -q --build=build/release tests/engines/kubernetes "$@"
}
