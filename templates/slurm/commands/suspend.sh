#!/bin/sh
# suspend.sh JOBID HOW: what of the job waits is held. What runs is ended, and waits held too, where HOW is
# "requeue"; else Slurm stops it where it is, if it lets us.
waits='' runs=''
states=$(squeue --noheader --jobs="$1" --format='%T %i') || exit
while read -r state id; do
  case $state in
    PENDING) waits=yes ;;
    RUNNING | CONFIGURING) runs="$runs $id" ;;
  esac
done <<STATES
$states
STATES
# Of an array it holds what waits, and complains of the rest.
[ -z "$waits" ] || said=$(scontrol uhold "$1" 2>&1) || case $said in
  *': No error'*) ;;
  *) echo "$said" >&2; exit 1 ;;
esac
for id in $runs; do
  if [ "$2" = requeue ]; then
    scontrol requeuehold "$id" || exit
  else
    said=$(scontrol suspend "$id" 2>&1) || {
      echo "$said: only a Slurm operator may suspend the running job $id, since it cannot be requeued (submit it with --preemptible)" >&2
      exit 1
    }
  fi
done
