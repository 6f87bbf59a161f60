#!/bin/sh
# remove.sh FOLDER JOBID: ends the job, waits until none of it runs, and removes what it left.
scancel --quiet "$2" 2>/dev/null
tries=0
while squeue --noheader --states=all --jobs="$2" --format=%T 2>/dev/null |
  grep -qE 'RUNNING|COMPLETING|PENDING|SUSPENDED|STOPPED|CONFIGURING|SIGNALING|REQUEUE'; do
  tries=$((tries + 1))
  [ "$tries" -lt 600 ] || {
    echo "job $2 does not end: see scontrol show job $2" >&2
    exit 1
  }
  sleep 0.1
done
rm -rf "$1"
