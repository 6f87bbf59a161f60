#!/bin/sh
# Unpacks the job's code, which submit sent in parts, before a Pod's command starts.
cd {{folder}} || exit
if ! command -v tar >/dev/null; then
  echo "dtrain: the image has no tar, needed to unpack the code: give one that has it by --sync-image" >&2
  exit 127
fi
cat /etc/dtrain-code/* | tar -xzof -
