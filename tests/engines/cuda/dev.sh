# shellcheck shell=sh
# What ./dev has of GPUs: the plug-in, compiled by nvcc, and its kernels run on the CPU. Sourced by it.
# python3-venv: for the wheels of CUDA's compiler, where the system has none (0.9 GB, once).
cuda_packages='libboost-context-dev python3-venv'

engine_help() {
  cat <<'TEXT'
                         cuda    the plug-in for GPUs: compiled, and its kernels' sources run on the
                                 CPU, with no GPU, by themselves and as the trainer's device
TEXT
}

engine_in_all() { true; }

engine_build() {
  # shellcheck disable=SC2086,SC2154 # lists of words, of dev
  need $build_packages $cuda_packages
  mkdir -p build
  {
    flock 8
    configure cuda
    cmake --build --preset cuda
  } 8>build/cuda.lock
}

engine_test() { # engine_test [PYTEST-ARGUMENTS...]
  engine_build
  # shellcheck disable=SC2086,SC2154
  need $test_packages $data_packages
  also ctest_run cuda '' 1
  # shellcheck disable=SC2154
  also "$python" -m pytest -q --build=build/cuda tests/engines/cuda "$@"
  # shellcheck disable=SC2154
  return "$tests_failed"
}
