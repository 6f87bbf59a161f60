#!/bin/sh
# usage.sh JOBID NODES COUNT RANKS: of each of the RANKS ("INSTANCE NODE PID" a line) of the job's that runs on one of
# its COUNT NODES, "INSTANCE CPUS BYTES" that it uses with all processes below it, over half a second.
id=$1 nodes=$2 count=$3 ranks=$4
# The step that is made for it is not told of what the caller's own allocation has.
for name in $(env | sed -n 's/^\(SLURM_[A-Z_]*\)=.*/\1/p'); do
  case $name in SLURM_CONF | SLURM_TIME_FORMAT) ;; *) unset "$name" ;; esac
done
# shellcheck disable=SC2016 # The inner shell's.
exec srun --jobid="$id" --overlap --mem=0 --gres=none --nodes="$count" --ntasks="$count" --ntasks-per-node=1 \
  --nodelist="$nodes" --quiet sh -c 'look() {
  date +"$1 time %s.%N"
  cat /proc/[0-9]*/stat 2>/dev/null | sed "s/(.*)/-/; s/^/$1 /"
}
{
  printf "%s\n" "$1" | sed "s/^/rank /"
  look before
  sleep 0.5
  look after
} | awk -v node="$SLURMD_NODENAME" -v ticks="$(getconf CLK_TCK)" -v page="$(getconf PAGESIZE)" "
  \$1 == \"rank\" { if (\$3 == node) instance[\$4] = \$2; next }
  \$2 == \"time\" { time[\$1] = \$3; next }
  { parent[\$2] = \$5; used[\$1, \$2] = \$15 + \$16 }
  \$1 == \"after\" { pages[\$2] = \$25 }
  END {
    for (pid in pages) {
      for (top = pid; top > 1 && !(top in instance); top = parent[top]);
      if (!(top in instance)) continue
      if ((\"before\", pid) in used) cpu[top] += used[\"after\", pid] - used[\"before\", pid]
      memory[top] += pages[pid]
    }
    for (pid in memory)
      printf \"%s %.3f %.0f\\n\", instance[pid], cpu[pid] / ticks / (time[\"after\"] - time[\"before\"]), memory[pid] * page
  }"' dtrain "$ranks"
