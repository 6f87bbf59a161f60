# The first thing that runs on a host of a job, over ssh: says what the host has, then waits for what
# it is to run. In front of it stand: id, a word of this connection's own; run, a folder that it makes
# for the job; folder, path and program of what will run; interface, whose address is asked for.
LC_ALL=C
export LC_ALL
say() { printf '%s\n' "$*"; }

# Whether $program can be run in $folder.
runs() (
  cd "$folder" || exit
  [ -z "$path" ] || PATH=$path
  case $program in
    */*) [ -f "$program" ] && [ -x "$program" ] ;;
    *) command -v "$program" ;;
  esac
)

say "dtrain-host $id"
for tool in setsid grep sed dd mkdir mv rm sleep; do
  command -v "$tool" >/dev/null 2>&1 || say "lacks the command $tool"
done
[ -r /proc/self/environ ] || say 'lacks /proc'
mkdir -p -m 700 "$run" 2>/dev/null
if ! { : >"$run/$id"; } 2>/dev/null; then
  say "lacks room to write in $run: it is full, read-only or another's"
fi
if ! [ -d "$folder" ]; then
  say "lacks the folder $folder: give one that all hosts have (--working-dir)"
elif ! runs >/dev/null 2>&1; then
  say "lacks the program $program: give its path there"
fi
# shellcheck disable=SC2086 # words
set -- $SSH_CONNECTION
address=$3
if [ -n "$interface" ]; then
  address=$(ip -o addr show dev "$interface" scope global 2>/dev/null |
    sed -n 's/.* inet6* \([^/ ]*\).*/\1/p;q')
  [ -n "$address" ] || say "lacks the interface $interface, or an address there"
fi
say "address $address"
sed -n 's/^ *[0-9]*: [0-9A-F]*:\([0-9A-F]*\) [0-9A-F:]* 0A .*/port \1/p' \
  /proc/net/tcp /proc/net/tcp6 2>/dev/null
say "dtrain-ready $id"
if ! read -r size; then
  rm -f "$run/$id"
  rmdir "$run" 2>/dev/null
  exit 0
fi
unset LC_ALL
eval "$(dd bs=1 count="$size" 2>/dev/null)"
