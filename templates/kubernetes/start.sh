#!/bin/sh
# Every rank's first step: from the Pod's index to the environment of dtrain-environment(7), then
# the command in this shell's place. A launcher's too, whose workers run worker.sh.
before={{before}} # In the Jobs of other roles.
place=$((JOB_COMPLETION_INDEX + before))
export DTRAIN_RESTART_COUNT="${DTRAIN_RESTART_COUNT:-0}"
{{#roles}}
first={{first}}
if [ "$place" -ge "$first" ] && [ "$place" -lt {{end}} ]; then
index=$((place - first))
{{#environment}}
export {{name}}={{value}}
{{/environment}}
export ROLE_RANK="$index"
{{#apart_from_rank_0}}
apart=yes # --role-sequence: it starts before rank 0's role, or that has started.
{{/apart_from_rank_0}}
{{#ordered}}
after={{after}} later={{later}} # --role-sequence: whether a role comes before it; the next role's hosts.
{{/ordered}}
{{#tf_config}}
export TF_CONFIG={{head}}"$index"{{tail}}
{{/tf_config}}
{{#ranked}}
export RANK="$place" NODE_RANK="$place" GROUP_RANK="$place"
export TORCHELASTIC_RESTART_COUNT="$DTRAIN_RESTART_COUNT" TORCHELASTIC_RUN_ID="$DTRAIN_JOB_UID"
{{/ranked}}
{{#torchrun}}
export PET_NODE_RANK="$place"
{{/torchrun}}
fi
{{/roles}}
# An image made for root has a home that our user cannot write.
[ -w "${HOME:-/}" ] || export HOME=/tmp
# What --env-file and --secret hold.
[ ! -r /etc/dtrain-environment/environment ] || . /etc/dtrain-environment/environment
{{#user_environment}}
export {{name}}={{value}}
{{/user_environment}}
# `dtrain exec` runs a command beside the rank, with what the rank has and a mark to find it by.
if [ "${1-}" = beside ]; then
  export DTRAIN_EXEC="$2"
  shift 2
  exec "$@"
fi
# Rank 0's name is known once its Pod has an address: programs that look it up only once would fail.
has_address() {
  [ "${apart-}" = yes ] || ! command -v getent || getent hosts "$1"
} >/dev/null 2>&1
tries=0
until has_address "$MASTER_ADDR"; do
  tries=$((tries + 1))
  if [ "$tries" -gt 300 ]; then
    echo "dtrain: $MASTER_ADDR has no address after 60 s: is the cluster's DNS up?" >&2
    break
  fi
  sleep 0.2 || sleep 1
done
{{#has_watched}}
# A Job whose roles have no rank is not ended by the cluster when the ranks' has, but by dtrain, when
# somebody looks. Where nobody does, it ends itself: when no rank has had an address for 5 minutes,
# although the cluster's DNS answers.
watch_ranks() {
  seen=no missing=0
  while [ "$missing" -lt 30 ]; do
    sleep 10 || return
    for host in{{#watched}} {{host}}{{/watched}} ''; do
      [ -z "$host" ] || ! getent hosts "$host" || break
    done
    if [ -n "$host" ]; then
      seen=yes missing=0
    elif [ "$seen" = yes ] && getent hosts kubernetes.default.svc; then
      missing=$((missing + 1))
    fi
  done >/dev/null 2>&1
  echo "dtrain: no rank has had an address for 5 minutes, so the job has ended" >&2
  kill -TERM $$
}
! command -v getent >/dev/null || watch_ranks &
{{/has_watched}}
{{#in_order}}
# --role-sequence: an instance that has ended has no address any more, and the next role would wait for
# it for ever. One that succeeds stays until it has seen the next role start, for ten minutes at most,
# and until the role before it can have seen its own address.
{{>has_address.sh}}
see_later() {
  tries=0
  while [ -n "$later" ] && [ "$tries" -lt 600 ]; do
    missing=
    for host in $later; do
      has_address "$host" >/dev/null 2>&1 || missing="$missing $host"
    done
    later=$missing tries=$((tries + 1))
    [ -z "$later" ] || sleep 1
  done
}
see_later &
seen=$!
{ [ "$after" = no ] || exec sleep {{seconds_to_be_seen}}; } &
visible=$!
exec{{#command}} {{word}}{{/command}} &
child=$! told=
trap 'told=yes; kill -TERM "$child" 2>/dev/null' TERM
while :; do
  wait "$child" 2>/dev/null # The shell would say how it ended.
  code=$?
  kill -0 "$child" 2>/dev/null || break
done
[ "$code" -ne 0 ] || [ -n "$told" ] || wait "$seen" "$visible"
exit "$code"
{{/in_order}}
{{#at_once}}
exec{{#command}} {{word}}{{/command}}
{{/at_once}}
{{#has_launcher}}
set --{{#command}} {{word}}{{/command}}
. /etc/dtrain/launcher.sh
{{/has_launcher}}
