# shellcheck shell=sh
# What ./dev has where there is an NVIDIA GPU: the kernels' tests, the sanitizer's runs of them, and
# training, on it; and for such a machine, a folder that has all of it. Sourced by it.

engine_help() {
  cat <<'TEXT'
                         gpu     on a machine with an NVIDIA GPU: its kernels against the CPU's, by
                                 compute-sanitizer too where it is installed, and training on it.
                                 Exit code 77 where there is none. See also `bundle`
TEXT
}

engine_in_all() { false; } # Few machines have one.

engine_build() {
  tests/engines/gpu/run probe
  engine cuda build
}

engine_test() { # engine_test [PYTEST-ARGUMENTS...]
  engine_build
  # shellcheck disable=SC2086,SC2154
  need $test_packages $data_packages
  # shellcheck disable=SC2154
  "$python" -m pytest -q --build=build/cuda tests/engines/gpu "$@"
}

engine_bundle() { # engine_bundle FOLDER
  engine cuda build
  # shellcheck disable=SC2086,SC2154
  need $test_packages binutils
  # shellcheck disable=SC2154
  tests/engines/gpu/bundle build/cuda "$1" "$python"
}
