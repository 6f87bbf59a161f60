# shellcheck shell=sh
# What ./dev has of Slurm: a real cluster of four nodes on this machine. Sourced by it.
slurm_packages='slurm-wlm munge procps'

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

engine_test() { # engine_test [PYTEST-ARGUMENTS...]
  # shellcheck disable=SC2086,SC2154 # lists of words, of dev
  need $test_packages $slurm_packages
  # shellcheck disable=SC2154
  "$python" -m pytest -q --build=build/release tests/conformance --engine=slurm \
    tests/engines/slurm "$@"
}
