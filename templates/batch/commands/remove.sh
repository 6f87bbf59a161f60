#!/bin/sh
# remove.sh FOLDER JOBID NAME COMMENT SINCE: ends the job, waits until none of it runs, and removes what it left.
# It is the one with that comment that was submitted since then (seconds; 0: not known), or with none but submitted
# just then: numbers restart, and another of the user's jobs may have that one. Without a JOBID it is
# looked for by its NAME; "elsewhere" has ended on another cluster. Where the queue does not answer, all stays.
# The queue's own end.sh comes before it: unended_jobs, end_jobs and $look.
folder=$1 id=$2 name=$3 comment=$4 since=$5
refuse() {
  printf '%s\n' "$1" >&2
  exit 1
}
# Sets $ids to what of the job has not ended.
ask() {
  said=$(unended_jobs "$id" "$name") || refuse "$said"
  ids=$(printf '%s\n' "$said" | awk -F'|' -v comment="$comment" -v since="$since" '
    NF < 3 { next }
    index($3 " ", comment " ") ? $2 + 300 >= since : $3 !~ /dtrain / && since > 0 && $2 <= since + 300 && $2 + 300 >= since { print $1 }' |
    sort -u)
}
[ "$id" = elsewhere ] || ask
[ "$id" = elsewhere ] || [ -z "$ids" ] || {
  # shellcheck disable=SC2086 # words
  refusal=$(end_jobs $ids 2>&1)
  for pause in 0.3 0.5 1 1 2 3 5 5 8 8 8 8 10 10 10 10 10; do
    ask
    [ -n "$ids" ] && [ -z "$refusal" ] || break
    sleep "$pause"
  done
  [ -z "$ids" ] || refuse "${refusal:-job $ids does not end: see $look $ids}"
}
rm -rf "$folder"
