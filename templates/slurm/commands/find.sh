#!/bin/sh
# find.sh JOB FORMAT FIELDS NAMESPACE/NAME ACCOUNTING: the folder JOB, below dtrain's own, its records and, after an empty
# line, what Slurm says of it (squeue's FORMAT). Where the user has none, "USER ID" of another's job by that
# name, if Slurm is quick to say so: squeue looks for a missing slurm.conf for a minute. Of one that Slurm has
# forgotten and that left no end, its accounting is asked.
# Under sudo, or in a home that is shared, the folder may be another's, whose files are not read.
cd "$XDG_STATE_HOME/dtrain/$1" 2>/dev/null && [ -s job ] && [ -O job ] || {
  timeout 5 squeue --noheader --name="${4#*/}" --format='%u %i %k' 2>/dev/null |
    sed -n "/^$(id -un) /d; s|^\([^ ]* [^ ]*\) dtrain $4\$|\1|p"
  exit 0
}
echo "$PWD"
read -r id <job
case $id in *'"array":"'[0-9]*) tasks=yes ;; *) tasks= ;; esac
id=${id#*\"id\":\"}
id=${id%%\"*}
# One that has no number, as its submission was cut off, is looked for by its name.
if [ -n "$id" ]; then which=--jobs=$id; else which="--me --name=${4#*/}"; fi
echo "cluster $(cluster_here)"
records & # Meanwhile:
# shellcheck disable=SC2086 # words
if ask_queue $which --format="$2"; then
  wait
  case $said in
    *'|PENDING|'* | *'|RUNNING|'*) ;;
    *) (records) ;; # Of what has ended meanwhile, they may have said only now how.
  esac
  printf '\n%s\n' "$said"
  [ -n "$tasks" ] || exit 0
else
  code=$?
  case $said in
    *'Invalid job id'*) # Slurm forgets jobs that have ended.
      said=
      wait
      echo
      ;;
    *)
      echo "$said" >&2
      exit "$code"
      ;;
  esac
fi
all=$(records)
cd ../..
eval "$5"
printf '%s\n%s\n' "$all" "$said" | tell_forgotten "$3"
