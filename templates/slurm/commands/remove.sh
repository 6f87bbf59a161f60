#!/bin/sh
# remove.sh FOLDER JOBID NAME COMMENT SINCE: ends the job, waits until none of it runs, and removes what it left.
# It is the one with that comment that was submitted since then (seconds; 0: not known); without a JOBID it is
# looked for by its NAME; "elsewhere" has ended on another cluster. No answer of Slurm's is none: all stays then.
folder=$1 id=$2 name=$3 comment=$4 since=$5
refuse() {
  printf '%s\n' "${1:-squeue does not answer}" >&2
  exit 1
}
# Sets $ids to what of the job has not ended.
ask() {
  if [ -n "$id" ]; then set -- --jobs="$id"; else set -- --me --name="$name"; fi
  said=$(squeue --noheader --states=all "$@" --format='%F|%T|%V|%k' 2>&1) || case $said in
    *'Invalid job id'*) said= ;; # Slurm has forgotten it.
    *) refuse "$said" ;;
  esac
  ids=$(printf '%s\n' "$said" | awk -F'|' -v comment="$comment" -v since="$since" '
    NF < 4 || $2 !~ /RUNNING|COMPLETING|PENDING|SUSPENDED|STOPPED|CONFIGURING|SIGNALING|RESIZING|STAGE_OUT|REQUEUE|SPECIAL_EXIT|RESV_DEL_HOLD|EXPEDITING/ { next }
    index($4 " ", comment " ") ? $3 + 300 >= since : $4 !~ /dtrain / && (since == 0 || ($3 <= since + 300 && $3 + 300 >= since)) { print $1 }' |
    sort -u)
}
[ "$id" = elsewhere ] || ask
[ "$id" = elsewhere ] || [ -z "$ids" ] || {
  # shellcheck disable=SC2086 # words
  refusal=$(scancel --quiet $ids 2>&1)
  for pause in 0.3 0.5 1 1 2 3 5 5 8 8 8 8 10 10 10 10 10; do
    ask
    [ -n "$ids" ] && [ -z "$refusal" ] || break
    sleep "$pause"
  done
  [ -z "$ids" ] || refuse "${refusal:-job $ids does not end: see scontrol show job $ids}"
}
rm -rf "$folder"
