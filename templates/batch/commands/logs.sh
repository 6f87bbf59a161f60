#!/bin/sh
# logs.sh FOLDER: reads files below FOLDER for who asks on stdin, a line each, until its end:
#   sizes NAME…           "SIZE SECONDS NAME" of each that is there, when it was last written to, and an empty line
#   bytes NAME FROM SIZE  those bytes
cd "$1" || exit
while read -r what words; do
  # shellcheck disable=SC2086 # words
  set -- $words
  case $what in
    sizes)
      stat --dereference --format='%s %.9Y %n' -- "$@" 2>/dev/null
      echo
      ;;
    bytes) dd if="$1" iflag=skip_bytes,count_bytes,fullblock bs=64K skip="$2" count="$3" status=none || exit ;;
  esac
done
