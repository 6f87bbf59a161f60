# shellcheck shell=sh
# What ./dev has of Kueue: jobs in queues on the tests' Kubernetes cluster. Sourced by it.
engine_help() {
  cat <<'TEXT'
                         kueue   jobs in queues on such a cluster, by Kueue's own controller (5 CPU
                                 minutes more); not in `all`
TEXT
}

engine_in_all() { false; }

engine_build() {
  engine kubernetes build
  tests/engines/kubernetes/cluster build-kueue
}

engine_test() { # engine_test [PYTEST-ARGUMENTS...]
  # shellcheck disable=SC2086,SC2154 # lists of words, of dev
  need $test_packages
  engine_build
  # shellcheck disable=SC2154
  env -u KUBEBUILDER_ASSETS "$python" -m pytest -q --build=build/release tests/engines/kueue "$@"
}
