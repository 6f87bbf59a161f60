#!/bin/sh
# The variables of a process, for eval: but those that a shell keeps for itself.
variables_of() {
  sed -z -n "/^\(_\|UID\|EUID\|PPID\|BASHOPTS\|SHELLOPTS\)=/d
    /^[A-Za-z_][A-Za-z0-9_]*=/{s/'/'\\\\''/g;s/=/='/;s/\$/'/;s/^/export /;p}" "/proc/$1/environ" |
    tr '\0' '\n'
}
