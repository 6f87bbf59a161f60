#!/bin/sh
# Stands before the command of a rayjob's workers: Ray's head runs beside the first, which runs the
# command; the others join the head and stay until the job ends. What Ray leaves running ends with
# the job.
set -u
if ! command -v ray >/dev/null; then
  echo "dtrain: ray is not in PATH: use an image or an environment that has it" >&2
  exit 127
fi
export RAY_ADDRESS="$MASTER_ADDR:$MASTER_PORT"

# Workers that share a machine share its cores; a container's are for Ray to count.
cores=
if [ "${LOCAL_WORLD_SIZE:-1}" -gt 1 ]; then
  cores=$(($(nproc) / LOCAL_WORLD_SIZE))
  cores=--num-cpus=$((cores > 0 ? cores : 1))
fi

if [ "$RANK" != 0 ]; then
  until ray health-check --address="$RAY_ADDRESS" >/dev/null 2>&1; do sleep 1; done
  [ -n "$cores" ] || exec ray start --address="$RAY_ADDRESS" --block
  # Nodes that start on one machine at once would take the same socket: one after the other.
  alone=
  ! command -v flock >/dev/null || alone="flock -o ${TMPDIR:-/tmp}"
  $alone ray start --address="$RAY_ADDRESS" $cores || exit
  node=$(pgrep -nf "raylet.* --gcs-address=$RAY_ADDRESS")
  while [ -z "$node" ] || kill -0 "$node" 2>/dev/null; do sleep 1; done
  echo "dtrain: Ray's node ended" >&2
  exit 1
fi

here=
case $MASTER_ADDR in
  localhost | 127.*) here=--node-ip-address=127.0.0.1 ;;
esac
ray start --head --port="$MASTER_PORT" --include-dashboard=false --disable-usage-stats $here \
  $cores >&2 || exit
"$@" &
command=$!
trap 'kill -TERM "$command"' TERM INT
wait "$command"
status=$?
while kill -0 "$command" 2>/dev/null; do # A signal ended the wait.
  wait "$command"
  status=$?
done
exit "$status"
