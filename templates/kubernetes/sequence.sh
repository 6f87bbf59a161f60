#!/bin/sh
# --role-sequence, in an init container: the Pods of a role start when those of the roles before it
# have. The Service of such a job gives a Pod its address when its container runs.
before={{before}} # In the Jobs of other roles.
place=$((JOB_COMPLETION_INDEX + before))
{{#roles}}
if [ "$place" -ge {{first}} ] && [ "$place" -lt {{end}} ]; then
  set --{{#earlier}} {{host}}{{/earlier}}
fi
{{/roles}}
if command -v getent >/dev/null; then
  has_address() { getent hosts "$1"; }
elif command -v nslookup >/dev/null; then
  # Of busybox, which leaves the search list aside.
  while read -r word first _; do
    [ "$word" != search ] || domain="$first"
  done </etc/resolv.conf
  has_address() { nslookup "$1.$domain"; }
else
  echo "dtrain: --role-sequence needs getent or nslookup in the image" >&2
  exit 1
fi
for host; do
  echo "dtrain: waiting for $host to start" >&2
  until has_address "$host" >/dev/null 2>&1; do
    sleep 0.2 || sleep 1
  done
done
