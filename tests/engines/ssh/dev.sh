# shellcheck shell=sh
# What ./dev has of ssh: three hosts on this machine, each with an sshd. Sourced by it.
ssh_packages='openssh-client openssh-server iproute2 iptables procps pdsh openmpi-bin busybox-static
  fish tcsh'

engine_help() {
  cat <<'TEXT'
                         ssh     jobs on three hosts of this machine's own, over real sshds
TEXT
}

engine_in_all() { true; }

engine_build() {
  # shellcheck disable=SC2086
  need $ssh_packages mmdebstrap
  # shellcheck disable=SC2154 # of dev
  # What one host runs for a while: older than what the programs are linked on.
  tries tests/engines/debian_root bullseye "$cache/roots/bullseye-ssh" procps,openmpi-bin || [ $? -eq 77 ]
}

engine_test() { # engine_test [PYTEST-ARGUMENTS...]
  # shellcheck disable=SC2086,SC2154 # lists of words, of dev
  need $test_packages $ssh_packages
  # The agent alone needs no hosts: its tests go side by side.
  agent='test_agent.py and not over_ssh' rest='not test_agent.py or over_ssh'
  [ $# -eq 0 ] || agent='' rest=''
  # shellcheck disable=SC2154
  [ -z "$agent" ] || also "$python" -m pytest -q --build=build/release -n "$at_once" -k "$agent" tests/engines/ssh
  # shellcheck disable=SC2154
  also "$python" -m pytest -q --build=build/release ${rest:+-k "$rest"} tests/conformance --engine=ssh \
    tests/engines/ssh "$@"
  # shellcheck disable=SC2154
  return "$tests_failed"
}
