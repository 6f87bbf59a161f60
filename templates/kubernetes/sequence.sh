#!/bin/sh
# --role-sequence, in an init container: the Pods of a role start when those of the role before it
# have. The Service of such a job gives a Pod its address when its container runs.
{{#restarts_alone}}
[ "${DTRAIN_RESTART_COUNT:-0}" -eq 0 ] || exit 0 # The role before it has started already.
{{/restarts_alone}}
before={{before}} # In the Jobs of other roles.
place=$((JOB_COMPLETION_INDEX + before))
{{#roles}}
if [ "$place" -ge {{first}} ] && [ "$place" -lt {{end}} ]; then
  set --{{#earlier}} {{host}}{{/earlier}}
fi
{{/roles}}
{{>has_address.sh}}
for host; do
  echo "dtrain: waiting for $host to start" >&2
  until has_address "$host" >/dev/null 2>&1; do
    sleep 0.2 || sleep 1
  done
done
