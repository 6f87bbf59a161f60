# shellcheck shell=sh disable=SC1007,SC2015,SC2034,SC2089,SC2090,SC2154,SC2317 # A part of a batch script.
# How a job of a queue runs, on its first node and as a rank. The script before it has what is the job's own:
# start_steps and what job.sh has; and what is the queue's own:
#   $job_id $this_node $script_name     the queue's number of the job, the name of the node that this runs on, the
#                                       script's in the job's folder
#   $own_launcher                       what to do instead where ssh lets deepspeed in nowhere
#   read_place                          sets place_in_step, local_rank, local_size, node_rank, step_nodes, step_id
#   node_tasks                          how many tasks each of the job's nodes has, a line each
#   ask_nodes                           "NAME ADDRESS" of each of its nodes, a line each; fails without an answer
#   end_step ID                         TERM to the ranks of a step
#   kill_wait                           seconds from TERM to KILL
#   requeue_job                         has the job queued again
#   show_launcher_gpus                  lets what the launcher starts by the queue have all of the job's GPUs there
runs=$folder/runs own=$folder task=
[ -z "$array" ] || { # Each of the array's tasks is all of this for itself.
  task=$array/
  job=$task$job runs=$runs.$array own=$folder/$array
}
umask_before=$(umask)
umask 077

now() { date +%s%N; }

# ---- A rank: from the queue's variables to those of dtrain-environment(7), then the command.

# FIRST END ROLE TYPE GPUS VIEW: whether the role has those places, of which this rank is in one.
is_in() {
  [ "$place" -ge "$1" ] && [ "$place" -lt "$2" ] || return 1
  index=$((place - $1))
  instance=$3-$index
  type=$4
  export ROLE_RANK="$index"
  show_gpus "$5" "$6"
}

# Of the GPUs that the queue shows a task, leaves it those that dtrain-environment(7) says. $1: how many are
# its own, $2: whether it sees the others of its step here (node, or auto: but for parts of GPUs), or
# none at all. Which it binds by itself depends on its version. $alone is set where it sees its own.
show_gpus() {
  alone= view=$2
  [ "$view" != none ] || export CUDA_VISIBLE_DEVICES=
  [ "$1" -gt 0 ] && [ -n "${CUDA_VISIBLE_DEVICES-}" ] || return 0
  seen=$(echo "$CUDA_VISIBLE_DEVICES" | tr , '\n' | grep -c .)
  case $view,$CUDA_VISIBLE_DEVICES in auto*,MIG-*) view=rank ;; esac
  if [ "$view" != rank ]; then
    [ "$seen" -ge "$local_size" ] || alone=1
    return 0
  fi
  alone=1
  [ "$seen" -lt $(($1 * local_size)) ] || CUDA_VISIBLE_DEVICES=$(echo "$CUDA_VISIBLE_DEVICES" |
    cut -d , -f $(($1 * local_rank + 1))-$(($1 * local_rank + $1)))
  export CUDA_VISIBLE_DEVICES
}

set_rank() {
  export RANK="$place" LOCAL_RANK="$local_rank" LOCAL_WORLD_SIZE="$local_size"
  export NODE_RANK="$node_rank" GROUP_WORLD_SIZE="$step_nodes"
  # One that sees its own GPUs alone is alone on its node, as a Pod is.
  [ -z "$alone" ] || export LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 NODE_RANK="$place" GROUP_WORLD_SIZE="$WORLD_SIZE"
  export GROUP_RANK="$NODE_RANK"
  export TORCHELASTIC_RESTART_COUNT="$run" TORCHELASTIC_RUN_ID="$job_id"
}

set_tf_config() {
  TF_CONFIG="{\"cluster\":$(sed -n 3p "$own/$run/cluster"),\"task\":{\"index\":$index,\"type\":\"$type\"}}"
  export TF_CONFIG
}

# deepspeed reaches the other nodes by pdsh, and that by ssh.
check_ssh() {
  other=$(sed -n '2s/ .*//p' "$own/hostfile")
  if [ -n "$other" ] && ! said=$(ssh -o BatchMode=yes -o ConnectTimeout=5 "$other" true 2>&1); then
    echo "dtrain: cannot log in to $other by ssh ($said), which deepspeed needs to start its workers; $own_launcher" >&2
  fi
}

need_data() {
  [ -e "$1" ] || {
    echo "dtrain: $this_node has no $1" >&2
    leave 1
  }
}

# The GPUs of CUDA_VISIBLE_DEVICES; of parts (MIG), whose names `nvidia-smi -i` does not take, the whole ones.
whole_gpus() {
  case $CUDA_VISIBLE_DEVICES in
    MIG-*)
      timeout 20 nvidia-smi -L | awk -v parts=",$CUDA_VISIBLE_DEVICES," '
        match($0, /UUID: [^)]*/) { uuid = substr($0, RSTART + 6, RLENGTH - 6) }
        /^GPU / { gpu = uuid }
        /^ *MIG / && index(parts, "," uuid ",") { print gpu }' | sort -u | paste -sd, -
      ;;
    *) echo "$CUDA_VISIBLE_DEVICES" ;;
  esac
}

# The first rank of a node asks for all GPUs that it sees, where nvidia-smi is. What is a fault is as in
# gpu_health.cpp.
need_good_gpus() {
  [ -n "${CUDA_VISIBLE_DEVICES-}" ] && [ "${LOCAL_RANK:-0}" = 0 ] && command -v nvidia-smi >/dev/null || return 0
  asked=$(whole_gpus)
  faults=$(timeout 20 nvidia-smi ${asked:+-i "$asked"} --format=csv,noheader,nounits \
    --query-gpu=index,name,ecc.errors.uncorrected.volatile.total,remapped_rows.failure,remapped_rows.pending,retired_pages.pending 2>&1 ||
    echo "nvidia-smi failed: $?"
    timeout 20 nvidia-smi ${asked:+-i "$asked"} --query-gpu=index,gpu_recovery_action --format=csv,noheader |
      grep -E ', (Reset|Reboot|Drain and Reset)$' | sed 's/$/ recommended by the driver/')
  faults=$(echo "$faults" | grep -E '^[0-9]+, [^,]*, [1-9]|, Yes|GPU is lost|requires reset|by the driver|[Ff]ailed|^Unable' | paste -sd';' -)
  [ -z "$faults" ] || {
    echo "dtrain: $this_node has a faulty GPU: $faults (index, name, uncorrectable ECC errors, failed and pending row remaps); exclude the node, or skip the check (--check-gpus=off)" >&2
    leave 1
  }
}

# TRAINER: as above, measured. Other ranks of the node wait with their commands until all are here.
need_measured_gpus() {
  [ -n "${CUDA_VISIBLE_DEVICES-}" ] && [ "${LOCAL_RANK:-0}" = 0 ] || return 0
  found=$(timeout 120 "$1" check-gpus 2>&1)
  measured=$?
  faults=$(echo "$found" | sed -n 's/^fault: //p' | paste -sd';' -)
  [ "$measured" != 124 ] || faults="$1 check-gpus did not end within 120 s, see dmesg"
  [ -z "$faults" ] || {
    echo "dtrain: $this_node has a faulty GPU: $faults; exclude the node, or skip the measurement (--check-gpus=on)" >&2
    leave 1
  }
  [ "$measured" = 0 ] ||
    echo "dtrain: $this_node: the GPUs were not measured (--check-gpus=measure): $(echo "$found" | tail -n 1)" >&2
}

# The rank's end, for `dtrain get` and for the script on the first node. It is no failure of its own
# where the queue had asked it to end.
leave() {
  trap '' HUP INT QUIT USR1 USR2 TERM PIPE
  echo "exit $task$instance $(now) $1${ended:+ told}" >"$own/$run/.$instance.exit"
  mv "$own/$run/.$instance.exit" "$own/$run/$instance.exit"
  echo "exit $place $instance $1 ${ended:-${told:-no}} $step" >&3
  exit "$1"
}

# Ports that nothing has here, below those that Linux gives away. By this process's number those of
# other jobs look elsewhere who choose at the same time; by a folder each, the other ranks of this.
choose_port() {
  port=$((port + 1))
  while grep -qs ":$(printf %04X "$port") " /proc/net/tcp /proc/net/tcp6 ||
    ! mkdir "$own/$run/.port-$here-$port" 2>/dev/null; do
    port=$((port + 1))
    [ "$port" -lt 65536 ] || leave 1
  done
}

# How much was printed when, for `dtrain logs` to join the ranks' lines in time.
note() {
  size="$(wc -c <"$own/$run/$instance.out") $(wc -c <"$own/$run/$instance.err")"
  [ "$size" = "$noted" ] || echo "$(now) $size"
  noted=$size
}

# RUN FIRST UMASK STEP. Its stdout and stdin are the script's on the first node: it says where it is
# and how it ended, and is told when all others are there.
be_rank() {
  run=$1 first=$2 umask_before=$3 step=$4
  exec 3>&1
  # A signal of the queue's is the command's too, whose end is then waited for; told so before, a rank
  # does not start its command.
  told= ended=
  trap 'told=signal' HUP INT QUIT USR1 USR2
  trap 'told=signal ended=ended' TERM
  read_place
  place=$((first + place_in_step))
  here=$(sed -n "s/^$this_node //p" "$own/$run/nodes")
  export DTRAIN_RESTART_COUNT="$run" DTRAIN_JOB_UID="$job_id"
  DTRAIN_JOB_TOKEN=$(cat "$own/token")
  export DTRAIN_JOB_TOKEN
  set_role
  exec >"$own/$run/$instance.out" 2>"$own/$run/$instance.err"
  port=$((10000 + $$ * 2 % 20000))
  choose_port
  task_port=$port
  choose_port
  echo "start $task$instance $this_node $$ $(now)" >"$own/$run/$instance.start"
  check_node
  echo "here $place $type $here $task_port $port $step $step_id $this_node" >&3
  [ -n "$told" ] || read -r _ || [ -n "$told" ] || { # A signal ends the reading.
    echo "dtrain: the script on the job's first node ended before all ranks had started" >&2
    leave 1
  }
  [ -z "$told" ] || leave 75
  exec </dev/null
  MASTER_ADDR=$(sed -n 1p "$own/$run/cluster")
  MASTER_PORT=$(sed -n 2p "$own/$run/cluster")
  set_cluster
  # Of what is printed it is noted once a second how much that is; while nothing is, tail waits. It ends
  # with this shell: what outlives the shell that started it may be lost to the queue.
  {
    trap '' HUP INT QUIT USR1 USR2 TERM
    noted=
    tail -q -n +1 -f --pid=$$ "$own/$run/$instance.out" "$own/$run/$instance.err" |
      while [ -n "$(dd bs=1 count=1 status=none | tr '\0\n' xx)" ]; do
        timeout -s KILL 1 cat >/dev/null
        note
      done >>"$own/$run/$instance.times"
  } 2>/dev/null 3>&- &
  ( # No name of a variable of the command's is one of this script's.
    [ -z "$told" ] || exit 75
    exec 3>&- 9>"$own/$run/$instance.env"
    umask "$umask_before"
    set_variables
    # For `dtrain exec`.
    export PWD
    { export -p && echo '# all'; } >&9
    exec 9>&-
    run_command
  )
  code=$?
  noted=
  note >>"$own/$run/$instance.times"
  leave "$code"
}

# ---- The job, on its first node.

# "NAME ADDRESS" of every node: its name, where that can be looked up, else as the queue reaches it.
node_addresses() {
  tries=0
  until nodes=$(ask_nodes); do
    tries=$((tries + 1))
    [ "$tries" -lt 60 ] || {
      echo "dtrain: cannot look up the job's nodes: the queue has not answered for ten minutes" >&2
      return 1
    }
    sleep 10
  done
  echo "$nodes" |
    while read -r name address; do
      ! getent hosts "$name" >/dev/null || address=$name
      echo "$name $address"
    done
}

# A launcher's workers are the tasks of the allocation, "HOST slots=N" a node. $1: slots of a worker.
write_hostfile() {
  node_tasks | paste -d' ' "$own/$run/nodes" - |
    awk '{ print $2 " slots=" $3 }' >"$own/hostfile"
  node_tasks | paste -d' ' "$own/$run/nodes" - |
    awk -v slots="$1" -v now="$(now)" '{
      for (i = 0; i < $3; i++)
        if (place++ % slots == 0) print "start worker-" count++ + 0 " " $1 " 0 " now
    }' >"$own/$run/workers.start"
}

# Rank 0's address and port, and TF_CONFIG's cluster, of "PLACE TYPE ADDRESS PORT PORT" a line.
write_cluster() {
  printf '%s' "$all_here" | sort -n | awk '
    $1 == 0 { print $3; print $5 }
    $2 != "evaluator" {
      if (!($2 in list)) types[++count] = $2
      list[$2] = list[$2] (list[$2] ? "," : "") "\"" ($3 ~ /:/ ? "[" $3 "]" : $3) ":" $4 "\""
    }
    END {
      for (i = 1; i <= count; i++)
        all = all (i > 1 ? "," : "") "\"" types[i] "\":[" list[types[i]] "]"
      print "{" all "}"
    }' >"$own/$run/cluster"
  find "$own/$run" -name '.port-*' -delete
}

# KIND FIRST COMMAND…: by the queue's COMMAND starts a step whose first rank is in place FIRST, and tells its end. Kinds:
# decides, helps, evaluates.
start_step() {
  kind=$1 first=$2
  shift 2
  step=$((step + 1))
  steps="$steps${steps:+ }$step"
  eval "kind_$step=$kind id_$step="
  mkfifo "$own/$run/.step-$step"
  {
    # Opened for both, so that it need not be waited for and has no end.
    "$@" sh "$own/$script_name" rank "$run" "$first" "$umask_before" "$step" <>"$own/$run/.step-$step" &
    echo "starts $step $!"
    wait "$!"
    echo "ends $step $?"
  } >&3 3>&- &
}

# SECONDS WORD: comes to be told after that long.
tell_after() {
  {
    trap 'kill "$timer"; exit' TERM
    sleep "$1" &
    timer=$!
    wait "$timer"
    echo "$2"
  } >&3 3>&- 2>/dev/null &
  timers="$timers $!"
}

# [BUT]: ends the steps that run, but one that ends by itself: by TERM, and after the queue's own time by KILL.
end_steps() {
  [ -z "$ending" ] || return 0
  ending=yes
  for each in $steps; do
    [ "$each" != "${1-}" ] || continue
    eval "id=\$id_$each pid=\$pid_$each"
    if [ -n "$id" ]; then
      end_step "$id" || kill "$pid"
    else
      [ -z "$pid" ] || kill "$pid"
    fi
  done
  seconds=$(kill_wait)
  tell_after "${seconds:-30}" kill
}

# What decides has ended well. What helps may end by itself, which an evaluator has time for.
finish_helpers() {
  finishing=yes
  ! $keeps_helpers || return 0
  grace=1
  for each in $steps; do
    eval "kind=\$kind_$each"
    [ "$kind" != evaluates ] || grace=60
  done
  [ "$grace" = "$grace_given" ] || tell_after "$grace" "over $grace"
  grace_given=$grace
}

some_decide() {
  for each in $steps; do
    eval "kind=\$kind_$each"
    [ "$kind" != decides ] || return 0
  done
  return 1
}

# CODE STEP: the first failure ends all that runs. What only had to wait for the others' end cannot fail.
fail() {
  [ -n "$finishing$code" ] || {
    code=$1
    [ "$steps" = "$2" ] || end_steps "$2"
  }
}

# A run, until all of its steps have ended. $code is how.
run_steps() {
  step=0 steps= timers= all_here= count=0 code= ending= finishing= grace_given= makes_room=
  mkfifo "$own/$run/.said" || {
    code=1
    return
  }
  exec 3<>"$own/$run/.said"
  start_steps
  while [ -n "$steps" ] && read -r what words <&3; do
    # shellcheck disable=SC2086 # words
    set -- $words
    case $what in
      starts) eval "pid_$1=$2" ;;
      here) # PLACE TYPE ADDRESS PORT PORT STEP STEPID NODE
        all_here="$all_here$1 $2 $3 $4 $5
"
        [ "$1" != 0 ] || node=$8
        eval "id_$6=${7-}"
        count=$((count + 1))
        [ "$count" -lt "$ranks" ] || {
          write_cluster
          echo "up $namespace $job $run $(now) $node" >>"$runs"
          for each in $steps; do echo go 1<>"$own/$run/.step-$each"; done
        }
        ;;
      exit) # PLACE INSTANCE CODE TOLD STEP. Before its step's end, in the order in which they come.
        if [ "$3" = 0 ]; then
          [ "$1" != 0 ] || [ -n "$code$finishing" ] || ! $chief_decides || finish_helpers
        elif [ "$4" != ended ] && [ -z "$code$finishing" ]; then
          if [ "$3" = 75 ] && [ "$4" = signal ]; then
            makes_room=yes
          else
            echo "first $namespace $job $run $(now) $2 $3" >>"$runs"
          fi
          fail "$3" "$5"
        fi
        ;;
      ends) # STEP CODE
        steps=$(echo " $steps " | sed "s/ $1 / /; s/^ *//; s/ *$//")
        [ "$2" = 0 ] || fail "$2" ""
        [ -z "$steps" ] || [ -n "$code" ] || some_decide || finish_helpers
        ;;
      over) [ "$1" != "$grace_given" ] || end_steps ;;
      kill)
        for each in $steps; do
          eval "pid=\$pid_$each"
          kill "$pid" # The queue ends what is left of the step at once.
        done
        ;;
    esac
  done
  # shellcheck disable=SC2086 # words
  [ -z "$timers" ] || kill $timers 2>/dev/null
  exec 3>&-
  rm -f "$own/$run/.said" "$own/$run"/.step-*
  code=${code:-0}
}

run_job() {
  mkdir -p "$own"
  cp -- "$0" "$own/$script_name"
  [ -s "$own/token" ] || od -An -v -N16 -tx1 /dev/urandom | tr -d ' \n' >"$own/token"
  prepare
  run=0
  while [ -e "$own/$run" ]; do run=$((run + 1)); done # Runs before are those of a requeued job.
  while :; do
    mkdir "$own/$run"
    echo "run $namespace $job $run $(now) $job_id $this_node" >>"$runs"
    if node_addresses >"$own/$run/nodes"; then run_steps; else code=1; fi
    # A rank that was told by a signal to make room, and ended with 75, has the job requeued.
    if $may_requeue && [ -n "$makes_room" ]; then
      echo "requeue $namespace $job $run $(now)" >>"$runs"
      ! requeue_job || exec sleep 3600 # The queue ends it.
    fi
    echo "end $namespace $job $run $(now) $code" >>"$runs"
    failures=$(grep -c '^end .* [1-9][0-9]*$' "$runs")
    [ "$code" -ne 0 ] && [ "$failures" -le "$max_restarts" ] || break
    run=$((run + 1))
  done
  exit "$code"
}

if [ "${1-}" = rank ]; then
  shift
  be_rank "$@"
fi
run_job
