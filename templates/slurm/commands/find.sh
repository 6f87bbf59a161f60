#!/bin/sh
# find.sh FOLDER FORMAT FIELDS NAMESPACE/NAME: the records of the job in FOLDER, below dtrain's own, and,
# after an empty line, what Slurm says of it (squeue's FORMAT). Where there is none, "USER ID" of another
# user's by that name. Of one that Slurm has forgotten and that left no end, its accounting is asked,
# where the cluster keeps one (sacct's FIELDS, in the same order).
cd "${XDG_STATE_HOME:-$HOME/.local/state}/dtrain/$1" 2>/dev/null && [ -s job ] || {
  squeue --noheader --name="${4#*/}" --format='%u %i %k' 2>/dev/null |
    sed -n "/^$(id -un) /d; s|^\([^ ]* [^ ]*\) dtrain $4\$|\1|p"
  exit 0
}
run=0
while [ -e $((run + 1)) ]; do run=$((run + 1)); done
cat job runs $run/*.start $run/*.exit 2>/dev/null # What is not there yet is left out.
echo
read -r id <job
id=${id#*\"id\":\"}
id=${id%%\"*}
said=$(squeue --noheader --states=all --jobs="$id" --format="$2" 2>&1) && {
  printf '%s\n' "$said"
  exit 0
}
code=$?
case $said in
  *'Invalid job id'*) ;; # Slurm forgets jobs that have ended.
  *)
    echo "$said" >&2
    exit "$code"
    ;;
esac
tail -n 1 runs 2>/dev/null | grep -q '^end ' ||
  sacct --noheader --parsable2 --allocations --jobs="$id" --format="$3" 2>/dev/null |
  grep -vE '^[^|]*[|](RUNNING|PENDING|SUSPENDED|RE)' || : # What it never heard the end of is none.
