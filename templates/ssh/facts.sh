# What a host has, and who has it. A rank takes its GPUs by a file of each device, and holds a lock for as
# long as a process of it is left. Jobs of all users keep to it, those that are started here, too (see
# gpu_claims.h).
say() { printf '%s\n' "$*"; }

# A private folder of the user's: of each job that has been here (hosts/UID/NUMBER), until it is deleted.
case ${XDG_STATE_HOME-} in
  /*) store=$XDG_STATE_HOME/dtrain ;;
  *) store=$HOME/.local/state/dtrain ;;
esac

# What every rank needs, and the words' more.
lacks_tools() {
  for tool in setsid grep sed dd mkdir mv rm sleep "$@"; do
    command -v "$tool" >/dev/null 2>&1 || say "lacks the command $tool"
  done
}

# Where ssh came in, or of $interface.
say_address() {
  address=${SSH_CONNECTION% *}
  address=${address##* }
  if [ -n "$interface" ]; then
    address=$(ip -o addr show dev "$interface" scope global 2>/dev/null |
      sed -n 's/.* inet6* \([^/ ]*\).*/\1/p;q')
    [ -n "$address" ] || say "lacks the interface $interface, or an address there"
  fi
  say "address $address"
}

claims=${DTRAIN_GPU_CLAIMS-}
if [ -n "$claims" ]; then
  :
elif [ -k /run/lock ]; then
  claims=/run/lock/dtrain-gpus
else
  claims=/var/tmp/dtrain-gpus
fi

# Those of a CUDA_VISIBLE_DEVICES, up to the first that is no device, as CUDA reads it.
visible_devices() (
  set -f
  seen=,
  IFS=,
  for each in $CUDA_VISIBLE_DEVICES; do
    each=${each#"${each%%[! ]*}"}
    each=${each%"${each##*[! ]}"}
    case $each in
      GPU-* | MIG-*) ;;
      "" | *[!0-9]*) break ;;
    esac
    case $seen in *",$each,"*) break ;; esac
    seen=$seen$each,
    echo "$each"
  done
)

lacks_count() {
  case $DTRAIN_LOCAL_GPUS in
    *[!0-9]*) say 'cannot count its GPUs: DTRAIN_LOCAL_GPUS is not a number in your login shell there; unset it' ;;
    *) return 1 ;;
  esac
}

# As CUDA_VISIBLE_DEVICES names them: those of one that is there already, else all that the driver shows.
# $DTRAIN_LOCAL_GPUS says how many where that is wrong.
devices() {
  ! lacks_count >/dev/null || return 0
  if [ -n "${CUDA_VISIBLE_DEVICES+set}" ]; then
    if [ -n "$DTRAIN_LOCAL_GPUS" ]; then visible_devices | head -n "$DTRAIN_LOCAL_GPUS"; else visible_devices; fi
    return
  elif [ -n "$DTRAIN_LOCAL_GPUS" ]; then
    count=$DTRAIN_LOCAL_GPUS
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

# Those of them that the job may have: the ones in $chosen, or all but the ones in $without.
chosen_devices() {
  for each in $(devices); do
    case " $without " in *" $each "*) continue ;; esac
    case " $chosen " in "  " | *" $each "*) echo "$each" ;; esac
  done
}

# What the files of who has it begin with: its index, though a job names it by its UUID, or by the first of
# that, as CUDA takes it.
device_files() {
  name=$1
  case $1 in
    GPU-*)
      index=0
      for each in /proc/driver/nvidia/gpus/*/information; do
        case $(sed -n 's/^GPU UUID:[[:space:]]*//p' "$each" 2>/dev/null) in
          "$1"*)
            name=$index
            break
            ;;
        esac
        index=$((index + 1))
      done
      ;;
  esac
  printf '%s/gpu-%s.' "$claims" "$(printf %s "$name" | tr / _)"
}

# By the claim that a device's file is of. Of another user's, that it is locked is all that counts.
is_held() { # is_held FILE
  claim=$claims/${1##*.}
  [ -f "$claim" ] && [ -r "$claim" ] && ! flock -ns 7 7<"$claim"
}

is_free() {
  for holder in "$(device_files "$1")"*; do
    ! is_held "$holder" || return
  done
}

other_users() {
  for device in $(chosen_devices); do
    for holder in "$(device_files "$device")"*; do
      if is_held "$holder" && ! [ -O "$holder" ]; then stat -c %U "$holder"; fi
    done
  done | sort -u
}

# Those that no rank has.
free_devices() { # free_devices [BUT,...]
  for each in $(chosen_devices); do
    case ,${1-}, in *",$each,"*) continue ;; esac
    ! is_free "$each" || echo "$each"
  done
}

# Ends what a job of the user's that was started there left on a device, whose supervisor was killed
# (gpu_claims.h); false where some of it, $left, is there after all.
end_last_user() {
  for holder in "$(device_files "$1")"*; do
    if [ -L "$holder" ] || ! [ -f "$holder" ] || ! [ -O "$holder" ] || is_held "$holder"; then continue; fi
    claim=$claims/${holder##*.}
    uid=
    read -r uid <"$holder"
    if [ -n "$uid" ] && [ -e "$claim" ]; then kill_job "$uid" || return; fi
    rm -f "$claim" "$holder"
  done
}

# All that has the job's uid in its environment; false where some of it, $left, is there after all.
kill_job() { # kill_job UID
  round=0
  while
    left=$(grep -lszxF "DTRAIN_JOB_UID=$1" /proc/[0-9]*/environ | tr -dc '0-9\n')
    [ -n "$left" ]
  do
    [ "$round" -lt 100 ] || return
    # shellcheck disable=SC2086 # numbers
    kill -KILL $left 2>/dev/null
    round=$((round + 1))
    sleep 0.05 || sleep 1
  done
}

# How many slots the user's ranks have here, but for those of the job in that folder.
taken_slots() {
  taken=0
  for each in "$store"/hosts/*/*/at.*; do
    [ "${each%/*/*}" != "$1" ] && { read -r pid _ <"$each"; } 2>/dev/null || continue
    grep -szqxF "DTRAIN_PROCESS=${each##*/at.}" "/proc/$pid/environ" || continue
    # A launcher and TensorBoard have none.
    grep -szq '^DTRAIN_INSTANCE=\(launcher\|tensorboard\)-' "/proc/$pid/environ" ||
      taken=$((taken + 1))
  done
  echo "$taken"
}
