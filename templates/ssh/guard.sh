# Looks after one rank on its host, and ends it where nobody asks after it any more: when the
# connection is closed, or nothing has come over it for $patience seconds. In front of it stand: mark,
# a variable as only the rank and what it starts have it in their environment; id and run, of host.sh;
# hostfile, a text; grace, the seconds between TERM and KILL; begin(), which becomes the rank.
printf %s "$hostfile" >"$run/hostfile.$id" && mv "$run/hostfile.$id" "$run/hostfile"
exec 3<&0 </dev/null
trap "" PIPE # Of a connection that is gone: there is work to do yet.

# The rank and all that it started, in whatever session.
find_marked() {
  marked=
  for pid in $(grep -lsF "$mark" /proc/[0-9]*/environ); do
    pid=${pid%/environ}
    marked="$marked ${pid#/proc/}"
  done
}

# Its group first, and once each.
tell() {
  until [ -s "$run/at.$id" ]; do sleep 0.05 || sleep 1; done
  read -r rank <"$run/at.$id"
  kill "-$1" "-$rank" || kill "-$1" "$rank"
  find_marked
  for pid in $marked; do
    group=$(sed 's/.*) . [0-9]* //; s/ .*//' "/proc/$pid/stat")
    [ "$group" = "$rank" ] || kill "-$1" "$pid"
  done
}

doze() {
  sleep "$1" &
  nap=$!
  while kill -0 "$nap"; do wait "$nap"; done
}

end() {
  tell TERM
  doze "$grace"
  tell KILL
}

(
  exec 3<&-
  trap 'heard=1' USR1
  trap 'kill "$nap"; exit' TERM
  heard=1
  while [ "$heard" = 1 ]; do
    heard=0
    doze "$patience"
  done
  end
) >/dev/null 2>&1 &
watch=$!
(
  trap 'kill "$nap"; exit' TERM
  while read -r word rest <&3; do
    case $word in
      beat) kill -USR1 "$watch" ;;
      hosts)
        # As many lines as it says.
        while [ "$rest" -gt 0 ] && IFS= read -r line <&3; do
          printf '%s\n' "$line"
          rest=$((rest - 1))
        done >"$run/hostfile.$id" && mv "$run/hostfile.$id" "$run/hostfile"
        ;;
      *) tell "$word" ;;
    esac
  done
  end
) >/dev/null 2>&1 &
reader=$!

# Not in the background, where it could not be interrupted by SIGINT. A shell's own word on how it
# ended is no output of the rank's.
exec 4>&2 2>/dev/null
(
  trap - PIPE
  exec 2>&4 3<&- 4>&-
  read -r pid _ </proc/self/stat
  echo "$pid" >"$run/at.$id"
  begin
)
status=$?
[ "$status" != 255 ] || status=165 # 255 is what ssh ends with where it was cut off.
exec 3<&- 4>&- >/dev/null
round=0
while [ "$round" -lt 100 ] && find_marked && [ -n "$marked" ]; do
  # shellcheck disable=SC2086 # numbers
  kill -KILL $marked
  round=$((round + 1))
  sleep 0.05 || sleep 1
done
kill "$reader" "$watch"
wait "$reader" "$watch"
leave
exit "$status"
