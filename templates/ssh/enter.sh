
# Runs a line for sh that the job's launcher sent to a host of its workers: with the variables of one
# of them, in its folder, on the GPUs of all that are there. It ends with that worker.
job=${0%/*/*/*} # On a disk that hosts share, of all of them.
worker=
devices=
for file in "$job"/*/at.*; do
  { read -r pid _ <"$file"; } 2>/dev/null || continue
  its=/proc/$pid/environ
  grep -szqxF "DTRAIN_PROCESS=${file##*/at.}" "$its" || continue
  grep -szqx 'DTRAIN_INSTANCE=worker-[0-9]*' "$its" || continue
  worker=$pid
  more=$(sed -z -n 's/^CUDA_VISIBLE_DEVICES=//p' "$its" | tr -d '\0')
  devices=$devices${devices:+${more:+,}}$more
done
if [ -z "$worker" ]; then
  echo "dtrain: no worker of the job is running on $(uname -n)" >&2
  exit 1
fi
variables=$(variables_of "$worker")
cd "$(readlink "/proc/$worker/cwd")" || exit
eval "$variables"
[ -z "$devices" ] || export CUDA_VISIBLE_DEVICES="$devices"
eval "$1"
