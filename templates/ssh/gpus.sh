# The GPUs of a host, and who has them. A rank takes its own by a line in a file of each device, and
# holds a lock for as long as a process of it is left.
claims=/tmp/dtrain-gpus-$(id -u)@$(uname -n)

# As CUDA_VISIBLE_DEVICES names them.
devices() {
  if [ -n "$DTRAIN_LOCAL_GPUS" ]; then
    count=$DTRAIN_LOCAL_GPUS
  elif [ -n "${CUDA_VISIBLE_DEVICES+set}" ]; then
    printf '%s\n' "$CUDA_VISIBLE_DEVICES" | tr -s ', ' '[\n*]'
    return
  else
    # One folder a device, or, where a container hides it, one device file.
    count=0
    for each in /proc/driver/nvidia/gpus/*; do
      [ ! -e "$each" ] || count=$((count + 1))
    done
    [ "$count" -gt 0 ] || for each in /dev/nvidia[0-9]*; do
      [ ! -e "$each" ] || count=$((count + 1))
    done
  fi
  device=0
  while [ "$device" -lt "$count" ]; do
    echo "$device"
    device=$((device + 1))
  done
}

claim_file() { printf '%s/gpu-%s' "$claims" "$(printf %s "$1" | tr / _)"; }

is_free() {
  holder=$(cat "$(claim_file "$1")" 2>/dev/null)
  [ -z "$holder" ] || ! [ -e "$claims/$holder" ] || flock -n "$claims/$holder" true
}

# Those that no rank has.
free_devices() {
  for each in $(devices); do
    ! is_free "$each" || echo "$each"
  done
}
