#!/bin/sh
# Unpacks the job's code, which submit sent in parts, before a Pod's command starts.
cd {{folder}} || exit
if ! command -v tar >/dev/null; then
  echo "dtrain: the image has no tar, which unpacks the code: --sync-image names one that has" >&2
  exit 127
fi
cat /etc/dtrain-code/* | tar -xzof -
