# The first thing that runs on a host of a job, over ssh, behind gpus.sh: says what the host has, then
# does as it is told. In front of them stand: id, a word of this connection's own; run, a folder that
# it makes for the job, and number, the host's own in there; folder, path and program of what will
# run; gpus, how many of them; interface, whose address is asked for; cargo, what the host has to be
# sent where it lacks it, by digests: the folder of the program (parcel), and the parts of the code;
# later, 1 where what will run is not here before that.
LC_ALL=C
export LC_ALL
store=${XDG_CACHE_HOME:-$HOME/.cache}/dtrain/ssh
place=$run/$number
say() { printf '%s\n' "$*"; }
# The last one of the job here takes all of it away.
leave() {
  rm -f "$run/at.$id" "$claims/$id"
  set -- "$run"/at.*
  [ -e "$1" ] || [ -z "$run" ] || rm -rf "$run"
}
last_line() { printf '%s' "$*" | tail -n 1; }

# Whether $program can be run in $folder.
runs() (
  cd "$folder" || exit
  [ -z "$path" ] || PATH=$path
  case $program in
    */*) [ -f "$program" ] && [ -x "$program" ] ;;
    *) command -v "$program" ;;
  esac
)

look() {
  case $folder in
    /*) ;;
    *) folder=$place/$folder ;;
  esac
  [ -z "$parcel" ] || program=$store/$parcel/$program
  if ! [ -d "$folder" ]; then
    say "lacks the folder $folder: give one that all hosts have (--working-dir)"
  elif ! runs >/dev/null 2>&1; then
    say "lacks the program $program: give its path there"
  fi
}

# Of the job's code, once a host.
unpack() {
  [ -n "$parts" ] && ! [ -d "$place/code" ] || return 0
  # shellcheck disable=SC2086 # words
  if ! why=$({ mkdir -p "$place/code.new" && cd "$store" && cat $parts |
    tar -xzf - -C "$place/code.new" && mv "$place/code.new" "$place/code"; } 2>&1); then
    say "lacks the job's code: $(last_line "$why")"
  fi
}

take_gpus() {
  mkdir -m 700 "$claims" 2>/dev/null
  if ! [ -O "$claims" ]; then
    say "lacks GPUs: $claims is another's"
    return
  fi
  # To be inherited by the rank, and all that it starts.
  exec 9>"$claims/$id" 8>"$claims/lock"
  if ! flock -n 9 || ! flock -w 10 8; then
    say 'lacks GPUs: another takes some for ever'
    return
  fi
  taken=$(free_devices | head -n "$gpus" | tr '\n' ' ')
  # shellcheck disable=SC2086 # words
  set -- $taken
  if [ $# -lt "$gpus" ]; then
    say "lacks $gpus free GPUs: $(free_devices | wc -l) of its $(devices | wc -l) are free"
  else
    for device in "$@"; do
      echo "$id" >"$(claim_file "$device")"
    done
    say "gpus $(echo "$@" | tr ' ' ,)"
  fi
  exec 8>&-
}

# One that answers is reached, if only to say no.
reach() {
  command -v bash >/dev/null && command -v timeout >/dev/null || return
  # shellcheck disable=SC2016 # for bash
  why=$(timeout 5 bash -c ': </dev/tcp/"$1"/"$2"' bash "$1" "$2" 2>&1) && return
  case $why in
    *refused*) ;;
    *) say "lacks a way to $3 at $1: does a firewall, or another network, stand between them?" ;;
  esac
}

say "dtrain-host $id"
for tool in setsid grep sed dd mkdir mv rm sleep ${cargo:+tar gzip cat} \
  $([ "$gpus" = 0 ] || echo flock id tr head); do
  command -v "$tool" >/dev/null 2>&1 || say "lacks the command $tool"
done
[ -r /proc/self/environ ] || say 'lacks /proc'
mkdir -p -m 700 "$run" 2>/dev/null
if ! { echo "$id" >"$run/room.$id" && rm "$run/room.$id" && : >"$run/at.$id"; } 2>/dev/null; then
  rm -f "$run/room.$id"
  say "lacks room to write in $run: it is full, read-only or another's"
fi
[ "$later" = 1 ] || look
[ "$gpus" = 0 ] || take_gpus
for digest in $cargo; do
  touch -c "$store/$digest"
  [ -e "$store/$digest" ] || say "wants $digest"
done
# shellcheck disable=SC2086 # words
set -- $SSH_CONNECTION
address=$3
if [ -n "$interface" ]; then
  address=$(ip -o addr show dev "$interface" scope global 2>/dev/null |
    sed -n 's/.* inet6* \([^/ ]*\).*/\1/p;q')
  [ -n "$address" ] || say "lacks the interface $interface, or an address there"
fi
say "address $address"
say "sshd $4"
say "clock $(date +%s)"
sed -n 's/^ *[0-9]*: [0-9A-F]*:\([0-9A-F]*\) [0-9A-F:]* 0A .*/port \1/p' \
  /proc/net/tcp /proc/net/tcp6 2>/dev/null
say "dtrain-ready $id"
while read -r word rest; do
  # shellcheck disable=SC2086 # words
  case $word in
    start)
      unset LC_ALL
      eval "$(dd bs=1 count="$rest" 2>/dev/null)"
      ;;
    reach) reach $rest ;;
    unpack) unpack ;;
    look) look ;;
    say) say "$rest" ;;
  esac
done
leave
