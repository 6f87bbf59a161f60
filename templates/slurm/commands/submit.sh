#!/bin/sh
# submit.sh FOLDER: makes FOLDER of what is on stdin, and gives its script to Slurm: a line of how many
# bytes of sh make its files and set the record's words around the job's number, those bytes, and then
# its code as a compressed archive, where it has some. Prints the job's number; "taken" where there is
# such a folder. Each program that it starts is a part of what a user waits for.
mask=$(umask)
umask 077
[ -d "${1%/*}" ] || mkdir -p "${1%/*}" || exit
mkdir "$1" 2>/dev/null || {
  echo taken
  exit 0
}
cd "$1" || exit
folder=$1
fail() {
  code=$?
  rm -rf "$folder"
  exit "$code"
}
read -r size
eval "$(head -c "$size")"
[ -z "$has_code" ] || { mkdir code && tar -xzf - -C code; } || fail
unset DTRAIN_GIT_TOKEN
give() { # The job has the user's own mask.
  umask "$mask"
  exec sbatch --parsable --output="$folder/slurm.log" --open-mode=append script.sbatch
}
: >sbatch.err
if id=$(give 2>>sbatch.err); then
  id=${id%%;*}
  printf '%s%s%s\n' "$begin" "$id" "$rest" >job || fail # In one write: it is there whole.
  echo "$id"
else
  code=$?
  cat sbatch.err >&2
  (exit "$code") || fail
fi
