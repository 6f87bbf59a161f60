# shellcheck shell=sh
# What ./dev has where there is an NVIDIA GPU: the kernels' tests, the sanitizer's runs of them, and
# training, on it. Sourced by it.

engine_help() {
  cat <<'TEXT'
                         gpu     on a machine with an NVIDIA GPU: its kernels against the CPU's, by
                                 compute-sanitizer too where it is installed, and training on it
TEXT
}

engine_in_all() { false; } # Few machines have one.

engine_build() {
  engine cuda build
  cmake --build build/cuda --target unit-gpu
}

engine_test() { # engine_test [PYTEST-ARGUMENTS...]
  [ -e /dev/nvidiactl ] || die 'test gpu: no NVIDIA GPU on this machine; ./dev test cuda does without'
  engine_build
  # shellcheck disable=SC2086,SC2154
  need $test_packages $data_packages
  # shellcheck disable=SC2154
  "$python" -m pytest -q --build=build/cuda tests/engines/gpu "$@"
}
