# The first thing that runs on a host of a job, over ssh, behind facts.sh and sums.sh: says what the
# host has, then does as it is told. In front of them stand: id, a word of this connection's own; run, a
# folder that it makes for the job, and number, the host's own in there; folder, path and program of
# what will run; gpus, how many of them; interface, whose address is asked for; cargo, what the host has
# to be sent where it lacks it, by digests: the folder of the program (parcel), and the parts of the
# code; data, paths that it must have, a line each; slots, that the user gave it (0: not said), and
# wanted, how many of them the job takes;
# later, 1 where what will run is not here before that.
LC_ALL=C
export LC_ALL
store=${XDG_CACHE_HOME:-$HOME/.cache}/dtrain/ssh
place=$run/$number
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

# False of what has to come, anew where it was damaged here.
is_whole() {
  [ -e "$store/$1" ] || return
  sums=$(cd "$store" && sums_of "$1" 2>&1)
  [ -z "$sums" ] || [ "$sums" != "$(cat "$store/$1.sums" 2>/dev/null)" ] || return 0
  rm -rf "${store:?}/$1"
  return 1
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
  ! lacks_count || return 0
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
      end_last_user "$device"
      echo "$id" >"$(claim_file "$device")"
    done
    say "gpus $(echo "$@" | tr ' ' ,)"
  fi
  exec 8>&-
}

# One that answers is reached, if only to say no. Over ssh bash would read the user's .bashrc again.
reach() {
  command -v bash >/dev/null && command -v timeout >/dev/null || return
  # shellcheck disable=SC2016 # for bash
  why=$(timeout 8 bash --norc -c ': </dev/tcp/"$1"/"$2"' bash "$1" "$2" 2>&1) && return
  case $why in
    *refused*) ;;
    *) say "lacks a way to $3 at $1: does a firewall, or another network, stand between them?" ;;
  esac
}

# A launcher starts its workers by the hosts' own ssh.
enters() {
  why=$(
    [ -z "$path" ] || PATH=$path
    ssh -o BatchMode=yes -o ConnectTimeout=8 "$1" true 2>&1 </dev/null
  ) ||
    say "lacks a way in to $2 by ssh, which a launcher needs: $(last_line "$why"): try ssh $1 there"
}

say "dtrain-host $id"
tools=
[ -z "$cargo" ] || tools='tar gzip cat cksum find sort'
[ "$gpus" = 0 ] || tools="$tools flock id tr head"
# shellcheck disable=SC2086 # words
lacks_tools $tools
[ -r /proc/self/environ ] || say 'lacks /proc'
mkdir -p -m 700 "$run" 2>/dev/null
# Some words, for a full disk takes an empty file; and of no process.
if ! { echo room >"$run/at.$id" && : >"$run/at.$id"; } 2>/dev/null; then
  rm -f "$run/at.$id"
  say "lacks room to write in $run: it is full, read-only or another's"
fi
[ -z "$data" ] || printf %s "$data" | while IFS= read -r each; do
  [ -e "$each" ] || say "lacks the data $each: have it there, at the same path on all hosts"
done
[ "$later" = 1 ] || look
if [ "$slots" -gt 0 ]; then
  taken=$(taken_slots "$run")
  [ $((taken + wanted)) -le "$slots" ] ||
    say "lacks $wanted free slots: other jobs of yours have $taken of its $slots"
fi
[ "$gpus" = 0 ] || take_gpus
for digest in $cargo; do
  touch -c "$store/$digest" "$store/$digest.sums"
  is_whole "$digest" || say "wants $digest"
done
say_address
say "sshd ${SSH_CONNECTION##* }"
# Hosts that are one machine, with one network, say the same.
say "machine $(cat /proc/sys/kernel/random/boot_id) $(readlink /proc/self/ns/net)"
say "clock $(date +%s)"
sed -n 's/^ *[0-9]*: [0-9A-F]*:\([0-9A-F]*\) [0-9A-F:]* 0A .*/port \1/p' \
  /proc/net/tcp /proc/net/tcp6 2>/dev/null
say "dtrain-ready $id"
while read -r word rest; do
  # shellcheck disable=SC2086 # words
  case $word in
    start)
      unset LC_ALL
      script=$(dd bs="$rest" count=1 iflag=fullblock 2>/dev/null)
      [ -n "$script" ] || script=$(dd bs=1 count="$rest" 2>/dev/null)
      eval "$script"
      ;;
    reach) reach $rest & ;;
    enters) enters $rest & ;;
    unpack) unpack ;;
    look) look ;;
    say)
      wait
      say "$rest"
      ;;
  esac
done
leave
