# shellcheck shell=sh
# What ./dev has of Slurm's other versions: Slurm's tests in roots of Debian that have them, with the programs
# of the tarball, since the oldest has a glibc older than what they are linked on. Sourced by it.
slurm_suites=${DTRAIN_TEST_SLURM_SUITES:-bullseye trixie forky}

engine_help() {
  cat <<'TEXT'
                         slurm-versions
                                 the same on Slurm 20.11, 24.11 and 26.05, in roots of Debian 11, 13
                                 and 14 (1 GB each; needs root);
                                 DTRAIN_TEST_SLURM_SUITES=trixie: on 24.11 alone
TEXT
}

engine_in_all() { true; }

engine_build() {
  need mmdebstrap
  build release
  package build/slurm-versions
  tar -xzf build/slurm-versions/dtrain-*.tar.gz -C build/slurm-versions
  for suite in $slurm_suites; do
    tries tests/engines/slurm-versions/root "$suite" true
  done
}

# The versions one after the other: what one says is not mixed with another's.
engine_test() { # engine_test [PYTEST-ARGUMENTS...]
  for suite in $slurm_suites; do
    echo "-- $suite"
    # shellcheck disable=SC2154 # of dev
    beside="-n $at_once --dist=loadgroup"
    [ "$suite" != bullseye ] || beside="-n $at_once --dist=load" # whose xdist has no groups
    [ "$at_once" != 0 ] || beside='' # or takes a second look's none for a mistake
    # shellcheck disable=SC2086 # words
    also tests/engines/slurm-versions/root "$suite" python3 -m pytest -q -r s \
      --build="$(echo build/slurm-versions/dtrain-*/)" $beside -o timeout=180 \
      tests/engines/slurm tests/conformance --engine=slurm "$@"
  done
  # shellcheck disable=SC2154
  return "$tests_failed"
}
