#!/bin/sh
# For a queue's find.sh and list.sh, in front of them, and by itself: what is to be known of a job without asking the queue.
#
# records: in a job's folder its record and those of its last run. $tasks is set where it is an array.
last_run() {
  run=0
  while [ -e "$1$((run + 1))" ]; do run=$((run + 1)); done
}
records() { # In a process of its own. What is not there yet is left out.
  exec 2>/dev/null
  if [ -z "$tasks" ]; then
    last_run ''
    exec cat job runs $run/*.start $run/*.exit
  else
    cat job runs.*
    for runs in runs.*; do
      last_run "${runs#runs.}/"
      printf '%s\n' "${runs#runs.}/$run"/*.start "${runs#runs.}/$run"/*.exit
    done | xargs cat
  fi
}

