#!/bin/sh
# resume.sh JOBID: lets go on what suspend.sh has held or stopped.
of_some() { # Of an array's tasks it may be that some can be let go on, of which it says "No error".
  said=$("$@" 2>&1) || case $said in
    *': No error'*) ;;
    *)
      echo "$said" >&2
      exit 1
      ;;
  esac
}
states=$(squeue --noheader --jobs="$1" --format=%T) || exit
case $states in *SUSPENDED*) of_some scontrol resume "$1" ;; esac
case $states in *PENDING* | *HOLD*) of_some scontrol release "$1" ;; esac
