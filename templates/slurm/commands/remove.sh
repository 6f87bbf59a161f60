#!/bin/sh
# remove.sh FOLDER JOBID: ends the job, waits until none of it runs, and removes what it left.
scancel --quiet "$2" 2>/dev/null # It ends without a word of what there is not.
tries=0
while said=$(squeue --noheader --states=all --jobs="$2" --format=%T 2>&1); do
  case $said in
    *RUNNING* | *COMPLETING* | *PENDING* | *SUSPENDED* | *STOPPED* | *CONFIGURING* | *SIGNALING* | *REQUEUE*) ;;
    *) break ;;
  esac
  tries=$((tries + 1))
  [ "$tries" -lt 600 ] || {
    echo "job $2 does not end: see scontrol show job $2" >&2
    exit 1
  }
  sleep 0.1
done
case $said in
  *error*Invalid\ job\ id*) ;; # Slurm has forgotten it.
  *error*)
    echo "$said" >&2
    exit 1
    ;;
esac
rm -rf "$1"
