#!/bin/sh
# Copies a bucket, $1, into a folder, $2, before a Pod's command starts. Its keys are in the
# environment alone.
export HOME=/tmp
if ! command -v dtrain >/dev/null; then
  echo "dtrain: the image has no dtrain, needed to copy $1: give one that has it by --sync-image" >&2
  exit 127
fi
exec dtrain data copy "$1" "$2"
