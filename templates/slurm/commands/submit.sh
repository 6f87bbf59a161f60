#!/bin/sh
# submit.sh FOLDER: makes FOLDER of the files on stdin, "SIZE NAME" and the bytes of each, and gives
# its script to Slurm. Prints the job's number, which .job lacks; "taken" where there is such a
# folder.
mask=$(umask)
umask 077
[ -d "${1%/*}" ] || mkdir -p "${1%/*}" || exit
mkdir "$1" 2>/dev/null || {
  echo taken
  exit 0
}
cd "$1" || exit
fail() {
  code=$?
  rm -rf "$1"
  exit "$code"
}
while read -r size name; do head -c "$size" >"$name" || fail "$1"; done
[ ! -e code.tar.gz ] || { mkdir code && tar -xzf code.tar.gz -C code && rm code.tar.gz; } || fail "$1"
unset DTRAIN_GIT_TOKEN
give() { # The job has the user's own mask.
  umask "$mask"
  sbatch --parsable --output="$1/slurm.log" --open-mode=append script.sbatch
}
: >sbatch.err
if id=$(give "$1" 2>>sbatch.err); then
  id=${id%%;*}
  sed "s/\"id\":\"\"/\"id\":\"$id\"/" .job >job.new && mv job.new job
  echo "$id"
else
  code=$?
  cat sbatch.err >&2
  (exit "$code") || fail "$1"
fi
