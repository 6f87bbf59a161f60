#!/bin/sh
# find.sh FOLDER FORMAT NAMESPACE/NAME: the records of the job in FOLDER and, after an empty line, what
# Slurm says of it. Where there is none, "USER ID" of another user's by that name.
cd "$1" 2>/dev/null && [ -e job ] || {
  squeue --noheader --name="${3#*/}" --format='%u %i %k' 2>/dev/null |
    sed -n "/^$(id -un) /d; s|^\([^ ]* [^ ]*\) dtrain $3\$|\1|p"
  exit 0
}
cat job
[ ! -e runs ] || cat runs
run=0
while [ -e $((run + 1)) ]; do run=$((run + 1)); done
if [ -e "$run" ]; then
  find "$run" -name '[!.]*.start' -exec cat {} +
  find "$run" -name '[!.]*.exit' -exec cat {} +
fi
echo
id=$(sed -n 's/.*"id":"\([0-9]*\)".*/\1/p' job)
said=$(squeue --noheader --states=all --jobs="$id" --format="$2" 2>&1) || {
  code=$?
  case $said in *'Invalid job id'*) exit 0 ;; esac # Slurm forgets jobs that have ended.
  echo "$said" >&2
  exit "$code"
}
printf '%s\n' "$said"
