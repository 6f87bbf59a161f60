#!/bin/sh
# logs.sh FOLDER once INSTANCE…: what the ranks of a run in FOLDER have printed: "INSTANCE.KIND SIZE"
# and the bytes of each file.
# logs.sh FOLDER follow INSTANCE…: of the job's last run, then what is added, and later runs', until
# nobody reads it. An empty line ends each round, so that the reader can look around.
cd "$1" 2>/dev/null || exit 0
how=$2
shift 2
# give FILE FROM: what FILE has beyond FROM bytes; sets size.
give() {
  size=$2
  [ ! -e "$1" ] || size=$(($(wc -c <"$1")))
  [ "$size" -gt "$2" ] || return 0
  echo "${1#*/} $((size - $2))" && tail -c +$(($2 + 1)) "$1" | head -c $((size - $2)) || exit
}
if [ "$how" = once ]; then
  for i; do
    for kind in times out err; do give "./$i.$kind" 0; done
  done
  exit
fi
run=0
while [ -e $((run + 1)) ]; do run=$((run + 1)); done
while :; do
  next=$((run + 1))
  [ -e "$next" ] || next=
  n=0
  for i; do
    for kind in out err; do
      n=$((n + 1))
      from=0
      eval "from=\${from_$n:-0}"
      give "$run/$i.$kind" "$from"
      eval "from_$n=$size"
    done
  done
  echo || exit
  if [ -n "$next" ]; then
    run=$next
    while [ "$n" -gt 0 ]; do
      eval "from_$n=0"
      n=$((n - 1))
    done
  else
    sleep 0.2
  fi
done
