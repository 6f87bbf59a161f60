# What the instances of a job on a host use, behind facts.sh: over ssh, or as begin() of a request of
# the agent's. Words: the job's uid.
ticks() {
  total=0
  for pid in $(marked "$1"); do
    used=$(sed 's/.*) . //' "/proc/$pid/stat" 2>/dev/null | cut -d ' ' -f 11,12 | tr ' ' +)
    total=$((total + ${used:-0}))
  done
  echo "$total"
}
marked() { grep -lszxF "DTRAIN_PROCESS=$1" /proc/[0-9]*/environ 2>/dev/null | cut -d / -f 3; }
look() {
  for file in "$store/hosts/$uid"/*/at.*; do
    { read -r pid _ <"$file"; } 2>/dev/null || continue
    grep -szqxF "DTRAIN_PROCESS=${file##*/at.}" "/proc/$pid/environ" || continue
    instance=$(sed -z -n 's/^DTRAIN_INSTANCE=//p' "/proc/$pid/environ" | tr -d '\0')
    [ -n "$instance" ] || continue # A request.
    id=${file##*/at.}
    pages=0
    [ "$1" = before ] || for each in $(marked "$id"); do
      pages=$((pages + $(cut -d ' ' -f 2 "/proc/$each/statm" 2>/dev/null || echo 0)))
    done
    echo "$1 $instance $(ticks "$id") $((pages * $(getconf PAGESIZE))) $(getconf CLK_TCK)"
  done
}
uid=$1
look before
sleep 0.25 2>/dev/null || sleep 1
look after
