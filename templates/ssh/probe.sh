# What a host has to give, behind facts.sh, for people: it starts nothing and leaves nothing. In front
# of them stand interface, whose address is asked for, and asks_health, which is not empty where health()
# is to say how its GPUs are.
LC_ALL=C
export LC_ALL
busy() { sed -n 's/^cpu  *\([0-9]*\) \([0-9]*\) \([0-9]*\).*/\1 + \2 + \3/p' /proc/stat; }
memory() { sed -n "s/^$1: *\([0-9]*\).*/\1/p" /proc/meminfo; }
before=$(($(busy)))
lacks_tools
lacks_count
near=$store
while [ -n "$near" ] && ! [ -d "$near" ]; do near=${near%/*}; done
if ! room=$(mktemp -d "$near/dtrain-room.XXXXXX" 2>/dev/null) || ! echo room 2>/dev/null >"$room/room"; then
  echo "cannot write in $store: disk full, read-only, or owned by another user"
fi
[ -z "$room" ] || rm -rf "$room"
say_address
echo "clock $(date +%s)"
echo "ranks $(taken_slots)"
echo "gpus $(devices | grep -c .) $(free_devices | grep -c .)"
echo "cpus $(grep -c '^processor' /proc/cpuinfo) $(getconf CLK_TCK)"
echo "memory $(memory MemTotal) $(memory MemAvailable)"
[ -z "$asks_health" ] || [ "$(devices | grep -c .)" = 0 ] || health 2>&1 | sed 's/^/health /'
sleep 0.25 2>/dev/null || sleep 1
echo "busy $(($(busy) - before))"
