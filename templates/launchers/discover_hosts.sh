#!/bin/sh
# Arena's /usr/local/bin/discover_hosts.sh of an etjob, for horovodrun's --host-discovery-script: a
# line HOST:SLOTS for each worker that the job has now.
while read -r host slots; do
  echo "$host:${slots#slots=}"
done <"$DTRAIN_HOSTFILE"
