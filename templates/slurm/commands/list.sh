#!/bin/sh
# list.sh FORMAT FIELDS ACCOUNTING: the records of all jobs and, after an empty line, what Slurm says of the user's
# (squeue's FORMAT); of those that it has forgotten, and that left no end, what its accounting says.
cd "$XDG_STATE_HOME/dtrain/slurm" 2>/dev/null || exit 0
[ -O . ] || {
  echo "$PWD belongs to $(stat --format=%U .): list jobs as that user, or set HOME or XDG_STATE_HOME to your own folder" >&2
  exit 1
}
records=$(
  find . -mindepth 3 -maxdepth 3 -name job -exec cat {} +
  find . -mindepth 3 -maxdepth 3 -name 'runs*' -exec cat {} +
)
ask_queue --me --format="$1" || {
  code=$?
  echo "$said" >&2
  exit "$code"
}
printf '%s\n' "$records"
echo "cluster $(cluster_here)"
printf '\n%s\n' "$said"
eval "$3"
printf '%s\n%s\n' "$records" "$said" | tell_forgotten "$2"
