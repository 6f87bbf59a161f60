# What a host of a job is asked before ranks start there, behind agent.sh and sums.sh: each question is a
# request of the agent's, whose begin() is one of these; what it prints is the answer. In front of them
# stand: folder, where ranks will start, and path, their PATH; interface, whose address is asked for;
# payload, what the host has to be sent where it lacks it, by digests; data, paths that it must have, a
# line each; gpus, 1 where the job asks for some; slots, that the user gave the host (0: not said), and
# wanted, how many of them the job takes. What runs is of the same shell as a rank: $run is the job's
# folder there.
LC_ALL=C
export LC_ALL
cache=${XDG_CACHE_HOME:-$HOME/.cache}/dtrain/ssh
case $folder in
  /*) ;;
  *) folder=$run/$folder ;;
esac
last_line() { printf '%s' "$*" | tail -n 1; }

# Whether a program can be run in $folder.
runs() (
  cd "$folder" || exit
  [ -z "$path" ] || PATH=$path
  case $1 in
    */*) [ -f "$1" ] && [ -x "$1" ] ;;
    *) command -v "$1" ;;
  esac
)

look() { # look PROGRAM...
  if ! [ -d "$folder" ]; then
    say "lacks the folder $folder: give one that all hosts have (--working-dir)"
    return
  fi
  for program in "$@"; do
    runs "$program" >/dev/null 2>&1 || say "lacks the program $program: give its path there"
  done
}

# JSON, or in its place why there is none.
measure() { # measure TRAINER DEVICES
  found=$(
    [ -z "$path" ] || PATH=$path
    exec 2>"$run/measured"
    CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=$2 "$1" check-gpus --json
  )
  if [ -n "$found" ]; then say "$found"; else tail -n 1 "$run/measured"; fi
  rm -f "$run/measured"
}

# That there is such a program does not say that it starts: another machine's, a folder that is noexec.
starts() { # starts PROGRAM
  why=$("$1" --version 2>&1) || say "cannot start the trainer, $1: $(last_line "$why")"
}

# False of what has to come, again where it was damaged here.
is_whole() {
  [ -e "$cache/$1" ] || return
  sums=$(cd "$cache" && sums_of "$1" 2>&1)
  [ -z "$sums" ] || [ "$sums" != "$(cat "$cache/$1.sums" 2>/dev/null)" ] || return 0
  rm -rf "${cache:?}/$1"
  return 1
}

# Of the job's code, once a host: what it wrote there stays from run to run.
unpack() { # unpack PART...
  ! [ -d "$run/code" ] || return 0
  new=$run/code.$id
  if ! why=$({ mkdir -p "$new" && cd "$cache" && cat "$@" | tar -xzf - -C "$new" &&
    { [ -d "$run/code" ] || mv "$new" "$run/code"; }; } 2>&1); then
    rm -rf "$new"
    say "cannot unpack the job's code: $(last_line "$why")"
  fi
}

# One that answers is reached, if only to say no. Over ssh bash would read the user's .bashrc again.
reach() { # reach ADDRESS PORT HOST
  command -v bash >/dev/null && command -v timeout >/dev/null || return
  # shellcheck disable=SC2016 # for bash
  why=$(timeout 8 bash --norc -c ': </dev/tcp/"$1"/"$2"' bash "$1" "$2" 2>&1) && return
  case $why in
    *refused*) ;;
    *) say "cannot connect to $3 ($1): a firewall, or a different network?" ;;
  esac
}

# A launcher starts its workers by the hosts' own ssh.
enters() { # enters ADDRESS HOST
  why=$(
    [ -z "$path" ] || PATH=$path
    ssh -o BatchMode=yes -o ConnectTimeout=8 "$1" true 2>&1 </dev/null
  ) ||
    say "cannot log in to $2 by ssh, which the launcher needs: $(last_line "$why") (try ssh $1 there)"
}

survey() {
  tools=
  [ -z "$payload" ] || tools='tar gzip cat cksum find sort'
  [ "$gpus" = 0 ] || tools="$tools flock id tr head"
  # shellcheck disable=SC2086 # words
  lacks_tools $tools
  [ -r /proc/self/environ ] || say 'lacks /proc'
  # Some words, for a full disk takes an empty file.
  echo room 2>/dev/null >"$run/room" ||
    say "cannot write in $run: disk full, read-only, or owned by another user"
  rm -f "$run/room"
  [ -z "$data" ] || printf %s "$data" | while IFS= read -r each; do
    [ -e "$each" ] || say "lacks the data $each: it must be at the same path on all hosts"
  done
  if [ "$slots" -gt 0 ]; then
    taken=$(taken_slots "$store/hosts/$job")
    [ $((taken + wanted)) -le "$slots" ] ||
      say "lacks $wanted free slots: your other jobs use $taken of its $slots"
  fi
  if [ -n "$chosen$without" ]; then
    for each in $chosen $without; do
      # shellcheck disable=SC2046 # words
      devices | grep -qxF "$each" || say "lacks GPU $each: it has $(devices | wc -l) ($(say $(devices)))"
    done
    say "gpus $(chosen_devices | tr '\n' ,)"
  fi
  for digest in $payload; do
    touch -c "$cache/$digest" "$cache/$digest.sums"
    is_whole "$digest" || say "wants $digest"
  done
  say_address
  say "sshd ${SSH_CONNECTION##* }"
  # Hosts that are one machine, with one network, say the same.
  say "machine $(cat /proc/sys/kernel/random/boot_id) $(readlink /proc/self/ns/net)"
  say "clock $(date +%s)"
  sed -n 's/^ *[0-9]*: [0-9A-F]*:\([0-9A-F]*\) [0-9A-F:]* 0A .*/port \1/p' \
    /proc/net/tcp /proc/net/tcp6 2>/dev/null
}

