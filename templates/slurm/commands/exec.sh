#!/bin/sh
# exec.sh JOBID NODE FILE COMMAND…: runs COMMAND on NODE beside the job's ranks, with the variables
# that FILE has, on this terminal.
id=$1 node=$2 file=$3
shift 3
terminal=
[ ! -t 0 ] || [ ! -t 1 ] || terminal=--pty
# The step that is made for it is not told of what the caller's own allocation has.
for name in $(env | sed -n 's/^\(SLURM_[A-Z_]*\)=.*/\1/p'); do
  case $name in SLURM_CONF | SLURM_TIME_FORMAT) ;; *) unset "$name" ;; esac
done
# There steps can share processors, but no GPUs: without any it does not wait for those of the ranks.
shares=
case $(srun --version) in *" 20."*) shares=--gpus-per-task=0 ;; esac
exec srun --jobid="$id" --overlap $shares --nodes=1 --ntasks=1 --nodelist="$node" --quiet $terminal \
  sh -c 'file=$1 tries=0
shift
until [ "$(tail -n 1 "$file" 2>/dev/null)" = "# all" ]; do
  tries=$((tries + 1))
  [ "$tries" -lt 300 ] || { echo "dtrain: no file $file: the nodes must share that folder" >&2; exit 1; }
  sleep 0.1
done
. "$file"
cd "$PWD" 2>/dev/null || echo "dtrain: $PWD is gone; running in $(pwd -P) instead" >&2
exec "$@"' dtrain "$file" "$@"
