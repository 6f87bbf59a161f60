#!/bin/sh
# list.sh FORMAT FIELDS: the records of all jobs and, after an empty line, what Slurm says of the user's
# (squeue's FORMAT); of those that it has forgotten, and that left no end, what its accounting says
# (sacct's FIELDS, in the same order).
cd "${XDG_STATE_HOME:-$HOME/.local/state}/dtrain/slurm" 2>/dev/null || exit 0
records=$(
  find . -mindepth 3 -maxdepth 3 -name job -exec cat {} +
  find . -mindepth 3 -maxdepth 3 -name runs -exec cat {} +
)
said=$(squeue --noheader --states=all --me --format="$1") || exit
printf '%s\n\n%s\n' "$records" "$said"
forgotten=$(printf '%s\n%s\n' "$records" "$said" | awk '
  $1 == "job" { # Once, until the job has begun.
    match($0, /"id":"[0-9]+"/); id = substr($0, RSTART + 6, RLENGTH - 7)
    match($0, /"name":"[^"]*"/); name = substr($0, RSTART + 8, RLENGTH - 9)
    match($0, /"namespace":"[^"]*"/); ids[substr($0, RSTART + 13, RLENGTH - 14) " " name] = id
  }
  $1 == "run" { ids[$2 " " $3] = $6; delete ended[$2 " " $3] }
  $1 == "end" { ended[$2 " " $3] }
  /^[0-9]+[|]/ { split($0, words, "|"); known[words[1]] }
  END { for (job in ids) if (!(job in ended) && !(ids[job] in known)) print ids[job] }' | paste -sd, -)
[ -z "$forgotten" ] ||
  sacct --noheader --parsable2 --allocations --jobs="$forgotten" --format="$2" 2>/dev/null |
  grep -vE '^[^|]*[|](RUNNING|PENDING|SUSPENDED|RE)' || : # What it never heard the end of is none.
