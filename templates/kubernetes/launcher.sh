#!/bin/sh
# What start.sh goes on to in a launcher: waits until sshd answers at every worker, runs the command
# ("$@"), and ends the workers.
max_restarts={{max_restarts}}

hosts() {
  while read -r host _; do echo "$host"; done <"$DTRAIN_HOSTFILE"
}

at() { # at HOST WORDS...: sshd's session in worker.sh
  ssh -n -o ConnectTimeout=5 "$@"
}

if ! command -v ssh >/dev/null; then
  echo "dtrain: the image has no ssh, which a launcher needs to reach its workers" >&2
  exit 127
elif ! id -un >/dev/null 2>&1; then
  echo "dtrain: the image has no user $(id -u), and ssh needs one: add it, or use --run-as-user=N" >&2
  exit 1
fi
for host in $(hosts); do
  tries=0 seen= gone=0
  until answer=$(at "$host" dtrain-ready 2>&1); do
    tries=$((tries + 1))
    if ! has_address "$host"; then
      # A Pod that has ended has no address any more.
      gone=$((gone + ${seen:-0}))
      if [ "$gone" -ge 30 ]; then
        echo "dtrain: $host ended before its sshd answered" >&2
        exit 1
      fi
    elif command -v getent >/dev/null; then
      seen=1 gone=0
    fi
    [ "$tries" -ne 60 ] || echo "dtrain: $host does not answer yet: $answer" >&2
    sleep 1
  done
done

export PDSH_RCMD_TYPE="${PDSH_RCMD_TYPE:-ssh}" PATH="/etc/dtrain-bin:$PATH"
# Open MPI would cut the names of the host file short, and find none.
export OMPI_MCA_orte_keep_fqdn_hostnames=1 PRTE_MCA_prte_keep_fqdn_hostnames=1
if [ "$(id -u)" -eq 0 ]; then
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi
told=
"$@" &
child=$!
trap 'told=1; kill -TERM "$child"' TERM
code=0
while :; do
  wait "$child"
  code=$?
  kill -0 "$child" 2>/dev/null || break
done
# A launcher that is moved, or is restarted, finds its workers again.
if [ -z "$told" ]; then
  last=dtrain-end
  [ "$code" -eq 0 ] || [ "$DTRAIN_RESTART_COUNT" -ge "$max_restarts" ] || last=dtrain-clear
  for host in $(hosts); do at "$host" "$last" >/dev/null 2>&1 & done
  wait
fi
exit "$code"
