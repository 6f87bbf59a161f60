#!/bin/sh
# Stands before the real deepspeed in the PATH of a job's launcher: hands it the job's host file and
# port, which it takes from flags alone. Flags given by the user come later and win.
own=${0%/*}
real=
rest=$PATH:
while [ -n "$rest" ]; do
  folder=${rest%%:*}
  rest=${rest#*:}
  if [ "$folder" != "$own" ] && [ -x "${folder:-.}/deepspeed" ]; then
    real=${folder:-.}/deepspeed
    break
  fi
done
if [ -z "$real" ]; then
  echo "deepspeed: not found in PATH" >&2
  exit 127
fi
# With GPUs of its own, and no host file, deepspeed starts a process on each of them.
if [ -z "$CUDA_VISIBLE_DEVICES" ]; then
  set -- --hostfile="$DTRAIN_HOSTFILE" "$@"
fi
exec "$real" --master_addr="$MASTER_ADDR" --master_port="$MASTER_PORT" "$@"
