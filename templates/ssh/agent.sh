# Looks after the ranks of one job on one host, over one ssh: starts them, sends on what they print,
# signals and ends them, and holds their GPUs. Any sh runs it (dash, bash, busybox). In front of it stand
# facts.sh, and: agent, a word of this connection's own; job and number, the job's uid and the host's own
# number in it; host_timeout, after how many seconds without a word from the supervisor all ends; grace, the
# seconds between TERM and KILL then; chosen and without, the GPUs that the job may have, and may not
# (facts.sh).
#
# It reads lines, "WORD KEY REST", and what some say is to follow; KEY is a rank's, the supervisor's word:
#   heartbeat 0      answered by the same; the supervisor is there
#   start KEY BYTES  a script of so many bytes, that defines begin(), which becomes the rank
#   run KEY BYTES    the same of a request: what begin() becomes may be done beside the ranks
#   signal KEY NAME  to the rank and all that it started; KEY all: to every one
#   hosts 0 BYTES    a text, what the job's host file is to say
#   put 0 BYTES      more of a file, $run/upload.$agent, for a request; answered as heartbeat is
#   claim KEY COUNT BUT,...  so many GPUs for a rank, none of those, that nobody else is given until
#   free KEY         the rank has ended, or after all will not be started
# Their end is the ranks' end. It writes "dtrain-agent WORD" and a newline, then frames: a line
# "KIND KEY BYTES", and so many bytes:
#   heartbeat 0      the answer
#   out KEY, err KEY what the rank printed, as it came
#   ended KEY        its exit code, as shells have it; all of its output came before
#   stuck KEY        the same, and what it left and nobody can kill: "137 4711 4712"
#   gpus KEY         those that it has now, as CUDA_VISIBLE_DEVICES has them
#   lacks KEY        why it has none; KEY 0: why this host cannot be used
locale=${LC_ALL-}
has_locale=${LC_ALL+1}
LC_ALL=C
export LC_ALL
trap '' PIPE USR1 # Of a connection that is gone: there is work to do yet.
exec 6<&0 7>&1 </dev/null >/dev/null 2>/dev/null
run=$store/hosts/$job/$number
read -r _ _ _ _ group session _ </proc/self/stat

# One writes to the connection at a time: who has read the only line in the pipe at 4, and puts it back
# then. Pipes are the kernel's alone, by /proc/self/fd, so that a full disk stops nobody.
frame() { # frame KIND KEY TEXT
  read -r _ <&4
  printf '%s %s %s\n%s' "$1" "$2" "${#3}" "$3" >&7
  echo >&4
}

# From stdin to the connection, until its end, a block at a time: into a pipe, until its length is told.
# 4096 bytes go into any; how many more is tried once they come so fast.
pump() { # pump KIND KEY
  exec 3<&0
  : | {
    exec 5<>/proc/self/fd/0 <&3 3<&-
    most=4096
    tried=
    while
      if [ -n "$dd_counts" ]; then
        said=$(dd bs="$most" count=1 2>&1 >&5)
        said=${said##*out?}
        length=${said%% *}
      else
        length=$(($(dd bs="$most" count=1 | tee /proc/self/fd/5 | wc -c)))
      fi
      [ "${length:-0}" -gt 0 ]
    do
      read -r _ <&4
      printf '%s %s %s\n' "$1" "$2" "$length" >&7 && dd bs="$length" count=1 <&5 >&7
      heard=$?
      echo >&4
      [ "$heard" = 0 ] || exec cat # Nobody is there: what the rank has to say is not to stop it.
      if [ "$length" = "$most" ] && [ -z "$tried" ] && command -v timeout; then
        tried=1
        echo >&5 # There is something to take out in any case.
        ! timeout 2 dd if=/dev/zero bs=61440 count=1 >&5 || most=61440
        dd bs=65536 count=1 <&5
      fi
    done
  }
}

# Of the ranks whose words begin so, into $members; false where there are none: those that have a word
# in their environment, or the rank's own pipes, and without either those of their sessions, and below
# them. Not of this session, which is the agent's own.
find_members() { # find_members WORD...
  members=$(
    {
      for each in "$@"; do
        # shellcheck disable=SC2046 # words
        printf 'of %s\n' $(cat "$run/at.$each"* "$run/ended.$each"*)
      done
      # There may be more of them than a command takes words.
      printf '%s\n' /proc/[0-9]*/environ | xargs grep -lsF "$(printf 'DTRAIN_PROCESS=%s\n' "$@")" |
        sed 's|/environ||;s|.*/|has |'
      printf '%s\n' /proc/[0-9]*/fd/[12] | xargs ls -l |
        sed -n 's|.* /proc/\([0-9]*\)/fd/[12] -> \(pipe:.*\)|holds \1 \2|p'
      printf '%s\n' /proc/[0-9]*/stat | xargs grep -s '' /dev/null |
        sed -n 's|^/proc/\([0-9]*\)/stat:.*) \([A-Z]\) \([0-9]*\) [0-9]* \([0-9]*\) .*|is \1 \2 \3 \4|p'
    } | awk -v own="$session" '
      $1 == "of" { of[$2] }
      $1 == "has" { found[$2] }
      $1 == "holds" && $3 in of { found[$2] }
      $1 == "is" && $3 != "Z" { parent[$2] = $4; session[$2] = $5 }
      END {
        do {
          more = 0
          for (pid in session) {
            if (!(pid in found) && (pid in of || session[pid] in of || parent[pid] in found)) {
              found[pid]
              more = 1
            }
            if (pid in found && session[pid] != own && session[pid] != 0 && !(session[pid] in of)) {
              of[session[pid]]
              more = 1
            }
          }
        } while (more)
        for (pid in found) if (pid in session) print pid
      }'
  )
  [ -n "$members" ]
}

tell() { # tell NAME WORD
  # shellcheck disable=SC2086 # numbers
  ! find_members "$2" || kill "-$1" $members
}

# Again and again, for what started others meanwhile. False where some are left after all.
kill_members() { # kill_members WORD...
  round=0
  while find_members "$@"; do
    [ "$round" -lt 100 ] || return
    # shellcheck disable=SC2086 # numbers
    kill -KILL $members
    round=$((round + 1))
    sleep 0.05 || sleep 1
  done
  members=
}

# Of a rank that has ended. Where many end at once, each would look through all processes of the host:
# instead, whose turn it is (stdin says so) ends what is left of all that have ended by then. In $members
# is then what nobody can kill.
end_leftovers() { # end_leftovers WORD
  mv "$run/at.$1" "$run/ended.$1" || {
    kill_members "$1"
    return
  }
  read -r _
  if [ -e "$run/ended.$1" ]; then
    ended=
    for each in "$run/ended.$agent."*; do ended="$ended ${each##*/ended.}"; done
    # shellcheck disable=SC2086 # words
    if kill_members $ended; then
      for each in $ended; do rm -f "$run/ended.$each"; done
    else
      for each in $ended; do
        if find_members "$each"; then
          mv "$run/ended.$each" "$run/stuck.$each"
        else
          rm -f "$run/ended.$each"
        fi
      done
    fi
  fi
  echo >&0
  members=
  [ ! -e "$run/stuck.$1" ] || ! find_members "$1"
}

end_all() {
  tell TERM "$agent."
  round=0
  while [ "$round" -lt $((grace * 5)) ] && find_members "$agent."; do
    round=$((round + 1))
    sleep 0.2 || sleep 1
  done
  kill_members "$agent."
}

# What a job left here stays; what is ours does not, but for what tells of who cannot be killed, and his
# GPUs. Some rank's end may still be on its way from "at" to "ended" to "stuck": it is caught where it goes.
tidy() {
  rm -rf "${run:?}/bin"
  rm -f "$run/hostfile" "$run/upload.$agent"
  if [ -z "$members" ]; then
    rm -f "$claims/$agent" "$claims"/gpu-*."$agent"
    for each in at ended stuck; do rm -f "$run/$each.$agent."*; done
  fi
  rmdir "$run" "$store/hosts/$job"
}

wait_seconds() {
  sleep "$1" &
  sleeper=$!
  while kill -0 "$sleeper"; do wait "$sleeper"; done
}

# Ends all where the supervisor is silent, the agent too: what it writes may be taken by nobody.
watch() {
  trap 'heard=1' USR1
  trap 'kill "$sleeper"; exit' TERM
  missed=0
  while [ "$missed" -lt 4 ]; do
    heard=0
    wait_seconds "$(((host_timeout + 3) / 4))"
    missed=$((heard == 1 ? 0 : missed + 1))
  done
  end_all
  tidy
  if [ "$group" = "$$" ]; then kill -KILL 0; else kill -KILL "$$"; fi
}

# The rank, in a process of its own, and what is to be done once it has ended.
body() { # body KEY, its stdout at 8 and its stderr at 1; at 0 whose turn it is to end leftovers
  exec 6>&1 >/dev/null
  # shellcheck disable=SC2012 # a link of the kernel's
  pipes=$(ls -l /proc/self/fd/6 /proc/self/fd/8 | sed 's/.* //')
  ( # In front, where SIGINT can interrupt it.
    exec </dev/null >&8 2>&6 4<&- 5<&- 6>&- 7>&- 8>&-
    trap - PIPE USR1
    LC_ALL=$locale
    [ -n "$has_locale" ] || unset LC_ALL
    read -r pid _ </proc/self/stat
    # shellcheck disable=SC2086 # words
    echo "$pid" $pipes 2>/dev/null >"$run/at.$id" || {
      echo "dtrain: cannot write in $run: disk full, read-only, or the folder was removed" >&2
      exit 126
    }
    echo >&3
    exec 3>&-
    export DTRAIN_PROCESS="$id"
    eval "$script"
    begin
  )
  status=$?
  exec 6>&- 8>&-
  # shellcheck disable=SC2086,SC2116 # words, of which some are on lines of their own
  end_leftovers "$id" || frame stuck "$1" "$(echo "$status" $members)"
  rm -f "$run/at.$id" "$run/stuck.$id"
  echo "$status" >&5
}

# Says a line on stdout once the process is there. Pipes have no names: of each, who waits for the
# rank's output holds one end, and only it and the rank.
rank() { # rank KEY, and its script in $script
  id=$agent.$1.
  exec 3>&1 6<&5 </dev/null
  : | {
    exec 5<>/proc/self/fd/0 <&6 6<&- # For its exit code.
    {
      exec 8>&1 >/dev/null
      body "$1" | pump err "$1" 3>&- 8>&-
    } | pump out "$1" 3>&- >/dev/null
    echo 137 >&5 # Where somebody killed who was to say it.
    read -r status <&5
    frame ended "$1" "$status"
  }
}

# All under one claim of the registry (facts.sh), the agent's: its ranks have the lock from it, so that
# what an agent leaves that somebody killed keeps its GPUs as long as it lives.
claim() { # claim KEY COUNT [BUT,...]
  if ! command -v flock || ! command -v head; then
    frame lacks "$1" 'lacks the command flock or head, needed to assign GPUs'
    return
  elif why=$(lacks_count); then
    frame lacks "$1" "$why"
    return
  fi
  mkdir -m 1777 "$claims"
  make_readable "$claims/lock"
  make_readable "$claims/$agent"
  # In a process of its own: a shell ends where exec cannot open a file.
  if ! (exec 8<"$claims/lock" 9<"$claims/$agent"); then
    frame lacks "$1" "cannot write in $claims, where all users record which GPUs are in use (chmod 1777): disk full, read-only, or not a folder of all users"
    return
  fi
  exec 8<"$claims/lock"
  if ! flock -w 5 8 || ! hold_claim; then
    frame lacks "$1" 'timed out waiting for the GPU lock on this host'
    exec 8>&-
    return
  fi
  all=$(free_devices "${3-}" | wc -l)
  if [ "$all" -lt "$2" ]; then
    others=$(other_users | tr '\n' ' ')
    frame lacks "$1" "lacks $2 free GPUs: $((all)) of its $(($(chosen_devices | wc -l))) are free${others:+; others are of jobs of ${others% }}"
  else
    picked=$(free_devices "${3-}" | head -n "$2")
    for device in $picked; do
      if ! end_last_user "$device"; then
        # shellcheck disable=SC2086,SC2116 # numbers, on lines of their own
        frame lacks "$1" "processes of the job that had GPU $device last survived SIGKILL: $(echo $left) (see ps -o pid,stat,wchan)"
        exec 8>&-
        return
      fi
    done
    own=
    for device in $picked; do
      echo >"$(device_files "$device")$agent"
      own=$own${own:+,}$device
    done
    eval "gpus_$1=\$own"
    frame gpus "$1" "$own"
  fi
  exec 8>&-
}

# Who cannot read it cannot see that it is locked.
make_readable() (
  umask 022
  set -C
  [ -e "$1" ] || : >"$1"
)

hold_claim() {
  [ -z "$holds" ] || return 0
  exec 9<"$claims/$agent"
  flock -n 9 && holds=1
}

free() { # free KEY
  eval "own=\${gpus_$1-}"
  unset "gpus_$1"
  while [ -n "$own" ]; do
    device=${own%%,*}
    own=${own#"$device"}
    own=${own#,}
    rm -f "$(device_files "$device")$agent"
  done
}

# Some sh cannot read a block but byte by byte.
take() { # take BYTES
  script=$(dd bs="$1" count=1 iflag=fullblock <&6)
  [ -n "$script" ] || script=$(dd bs=1 count="$1" <&6)
}

# Nothing of it may be left unread, though the disk be full.
put() { # put BYTES
  if [ -z "$block" ]; then
    block=none
    ! dd iflag=fullblock count=0 </dev/null || block=whole
  fi
  if [ "$block" = whole ]; then
    dd bs="$1" count=1 iflag=fullblock <&6
  else
    dd bs=1 count="$1" <&6
  fi | { cat >>"$run/upload.$agent" || cat >/dev/null; }
}

# A rank is started in front of what goes on: in the background, SIGINT would be ignored by all of it.
serve() {
  while read -r word key rest <&6; do
    case $word in
      heartbeat)
        kill -USR1 "$watch"
        frame heartbeat 0 ''
        ;;
      start)
        take "$rest"
        rank "$key" | {
          read -r _
          script=
          serve
        }
        return
        ;;
      run)
        take "$rest"
        rank "$key" &
        script=
        ;;
      signal)
        [ "$key" != all ] || key=
        tell "$rest" "$agent.${key:+$key.}" &
        ;;
      put)
        put "$rest"
        kill -USR1 "$watch"
        frame heartbeat 0 ''
        ;;
      claim)
        # shellcheck disable=SC2086 # words
        claim "$key" $rest
        ;;
      free) free "$key" ;;
      hosts)
        take "$rest"
        printf '%s\n' "$script" >"$run/hostfile.$agent" && mv "$run/hostfile.$agent" "$run/hostfile"
        ;;
    esac
  done
  end_all
}

# One that somebody else made may have what he likes in it by now.
make_private() (
  umask 077
  mkdir -p "$1" && [ -d "$1" ] && [ -O "$1" ] && ! [ -L "$1" ] && chmod 700 "$1"
)

printf '\ndtrain-agent %s\n' "$agent" >&7
: | {
  exec 4<>/proc/self/fd/0 # A line in it: whose turn it is to write to the connection.
  : | {
    exec 5<>/proc/self/fd/0 </dev/null # Likewise, to end leftovers.
    echo >&4
    echo >&5
    for tool in awk cat dd grep ls mkdir mv rm sed setsid sleep xargs; do
      if ! command -v "$tool"; then
        frame lacks 0 "lacks the command $tool"
        exit 1
      fi
    done
    for folder in "$store" "$store/hosts" "$store/hosts/$job" "$run"; do
      if ! make_private "$folder"; then
        frame lacks 0 "cannot make the private folder $folder: disk full, read-only, or owned by another user"
        exit 1
      fi
    done
    holds=
    block=
    # Some say how many blocks they copied, and not how many bytes.
    dd_counts=
    case $(echo | dd bs=1 count=1 2>&1 >/dev/null) in *'1 byte'*) dd_counts=1 ;; esac
    watch 4<&- 5<&- 6<&- 7>&- &
    watch=$!
    serve
    tidy
    kill "$watch"
  }
}
