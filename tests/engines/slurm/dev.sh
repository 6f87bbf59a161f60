# shellcheck shell=sh
# What ./dev has of Slurm: a real cluster of four nodes on this machine. Sourced by it.
slurm_packages='slurm-wlm slurmdbd mariadb-server-core mariadb-client-core munge procps openssh-client
openssh-server'

engine_help() {
  cat <<'TEXT'
                         slurm   jobs on a real Slurm with four nodes on this machine
TEXT
}

engine_in_all() { true; }

engine_build() {
  # shellcheck disable=SC2086
  need $slurm_packages
}

# Tests wait more than they compute. Those of the first folder wait longest: they are given out first,
# and one by one.
engine_test() { # engine_test [PYTEST-ARGUMENTS...]
  # shellcheck disable=SC2086 # a list of words
  need $slurm_packages
  pytest_run release '' --dist=loadgroup tests/engines/slurm tests/conformance --engine=slurm "$@"
}
