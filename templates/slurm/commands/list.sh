#!/bin/sh
# list.sh FOLDER FORMAT: the records of all jobs below FOLDER and, after an empty line, what Slurm
# says of the user's jobs.
cd "$1" 2>/dev/null || exit 0
find . -mindepth 3 -maxdepth 3 -name job -exec cat {} +
find . -mindepth 3 -maxdepth 3 -name runs -exec cat {} +
echo
squeue --noheader --states=all --me --format="$2"
