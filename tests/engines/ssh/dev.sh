# shellcheck shell=sh
# What ./dev has of ssh: three hosts on this machine, each with an sshd. Sourced by it.
ssh_packages='openssh-client openssh-server iproute2 iptables procps pdsh openmpi-bin busybox
  fish tcsh'

engine_help() {
  cat <<'TEXT'
                         ssh     jobs on three hosts of this machine's own, over real sshds
TEXT
}

engine_in_all() { true; }

engine_build() {
  # shellcheck disable=SC2086
  need $ssh_packages
}

engine_test() { # engine_test [PYTEST-ARGUMENTS...]
  # shellcheck disable=SC2086,SC2154 # lists of words, of dev
  need $test_packages $ssh_packages
  # shellcheck disable=SC2154
  "$python" -m pytest -q --build=build/release tests/conformance --engine=ssh \
    tests/engines/ssh "$@"
}
