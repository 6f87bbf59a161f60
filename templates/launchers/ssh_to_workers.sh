#!/bin/sh
# Stands before ssh in the PATH of a launcher whose workers are on other hosts: what it starts there
# is started as if by the worker, and ends with it. The job has a folder with such tools on each.
own=${0%/*}
job=${own%/*/*}
job=${job##*/}
real=
rest=$PATH:
while [ -n "$rest" ]; do
  folder=${rest%%:*}
  rest=${rest#*:}
  if [ "$folder" != "$own" ] && [ -x "${folder:-.}/ssh" ]; then
    real=${folder:-.}/ssh
    break
  fi
done
if [ -z "$real" ]; then
  echo "ssh: not found in PATH" >&2
  exit 127
fi
# The options go behind the host and the command.
left=$#
while [ "$left" -gt 0 ]; do
  case $1 in
    -[BbcDEeFIiJLlmOopQRSWw])
      set -- "$@" "$1" "$2"
      shift 2
      left=$((left - 2))
      ;;
    --)
      shift
      left=$((left - 1))
      break
      ;;
    -*)
      set -- "$@" "$1"
      shift
      left=$((left - 1))
      ;;
    *) break ;;
  esac
done
host=$1
shift
left=$((left - 1))
line=
while [ "$left" -gt 0 ]; do
  line="$line${line:+ }$1"
  shift
  left=$((left - 1))
done
[ -n "$line" ] || exec "$real" "$@" -- "$host"
quoted=$(printf '%s\n' "$line" | sed "s/'/'\\\\''/g")
# On one line, without what some login shell would read in quotes.
# shellcheck disable=SC2016 # for sh there
find='case $XDG_STATE_HOME in /*) ;; *) XDG_STATE_HOME=$HOME/.local/state ;; esac; line=$1; set -- "$XDG_STATE_HOME/dtrain/hosts/$0"/*/bin/enter; [ -x "$1" ] && exec "$1" "$line"; echo "dtrain: no worker of the job is running there" >&2; exit 1'
exec "$real" -o BatchMode=yes "$@" -- "$host" "exec sh -c '$find' $job '$quoted'"
