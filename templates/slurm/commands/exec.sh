#!/bin/sh
# exec.sh JOBID NODE FILE COMMAND…: runs COMMAND on NODE beside the job's ranks, with the variables that
# FILE has, on this terminal.
id=$1 node=$2 file=$3
shift 3
terminal=
[ ! -t 0 ] || [ ! -t 1 ] || terminal=--pty
exec srun --jobid="$id" --overlap --nodes=1 --ntasks=1 --nodelist="$node" --quiet $terminal \
  sh -c '. "$1"; cd "$PWD" 2>/dev/null || echo "dtrain: $PWD is gone: runs in / instead" >&2
shift
exec "$@"' dtrain "$file" "$@"
