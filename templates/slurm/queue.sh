# shellcheck shell=sh disable=SC1007,SC2034,SC2154,SC2317 # A part of job.sbatch.
# What ranks.sh asks of Slurm: its variables, and what srun, scontrol and scancel are called with.
job_id=$SLURM_JOB_ID this_node=$SLURMD_NODENAME script_name=script.sbatch
own_launcher='use deepspeed --launcher=slurm, or run every rank without a launcher'
unset SLURM_LABELIO SLURM_STDINMODE SLURM_STDOUTMODE SLURM_STDERRMODE # Ranks speak to the script by srun's.

# Slurm says "2(x3),1" of nodes that have 2, 2, 2 and 1 tasks: a line each.
each_node() {
  echo "$1" | tr , '\n' | sed 's/(x/ /; s/)//' |
    while read -r count times; do
      for _ in $(seq "${times:-1}"); do echo "$count"; done
    done
}

node_tasks() { each_node "$SLURM_TASKS_PER_NODE"; }

read_place() {
  place_in_step=${SLURM_PROCID-0} local_rank=${SLURM_LOCALID-} node_rank=${SLURM_NODEID-}
  step_nodes=${SLURM_STEP_NUM_NODES-} step_id=${SLURM_STEP_ID-}
  local_size=$(each_node "${SLURM_STEP_TASKS_PER_NODE-1}" | sed -n "$((${SLURM_NODEID-0} + 1))p")
}

ask_nodes() {
  asked=$(scontrol show node --oneliner "$SLURM_JOB_NODELIST") || return
  echo "$asked" | sed 's/^NodeName=\([^ ]*\) .* NodeAddr=\([^ ]*\) .*/\1 \2/'
}

end_step() { timeout 60 scancel --quiet --signal=TERM "$SLURM_JOB_ID.$1"; }
kill_wait() { timeout 60 scontrol show config | sed -n 's/^KillWait *= \([0-9]*\).*/\1/p'; }
requeue_job() { scontrol requeue "$SLURM_JOB_ID"; }

# What the launcher starts by srun, one program a node, has all of the job's GPUs there.
show_launcher_gpus() {
  unset SLURM_GPUS_PER_TASK SLURM_TRES_PER_TASK SLURM_TRES_BIND
  case $SLURM_TASKS_PER_NODE in
    *,*) echo "dtrain: the nodes have different numbers of slots ($SLURM_TASKS_PER_NODE), so each program that the launcher starts sees one GPU; give every node as many (--sbatch-arg=--ntasks-per-node=N)" >&2 ;;
    *) export SLURM_GPUS_PER_NODE="${SLURM_TASKS_PER_NODE%%(*}" ;;
  esac
}
