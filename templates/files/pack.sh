#!/bin/sh
# A file or folder of an instance's as a tar archive, behind a line that says where it begins. Any sh
# and tar will do. Words: the folder that the instance was started in, the path from there. It ends
# with 3 where there is no such path, and else with 1, and says why.
case $2 in
  /*) path=$2 ;;
  *)
    if ! cd "$1" 2>/dev/null; then
      echo "no folder $1" >&2
      exit 3
    fi
    path=$PWD/$2
    ;;
esac
if [ -d "$path" ]; then
  follow='' name=.
elif [ -f "$path" ]; then
  follow=h name=./${path##*/} path=${path%/*}/ # A link's file.
elif [ -e "$path" ]; then
  echo "$path is neither a file nor a folder" >&2
  exit 1
else
  echo "no file or folder $path" >&2
  exit 3
fi
if ! command -v tar >/dev/null 2>&1; then
  echo "tar is not installed there: install it, or copy by dtrain exec" >&2
  exit 1
fi
cd "$path" || exit 1
unset TAR_OPTIONS
printf '\n%s\n' dtrain-archive
exec 3>&1
why=$(LC_ALL=C tar -c${follow}f - "$name" 2>&1 >&3 3>&-)
code=$?
[ "$code" != 0 ] || exit 0
# What is written or removed meanwhile is as it was when its turn came.
others=$(
  printf '%s\n' "$why" | while IFS= read -r line; do
    case $line in
      (*': file changed as we read it' | *': File removed before we read it') ;;
      (*) printf '%s\n' "$line" ;;
    esac
  done
)
[ "$code" != 1 ] || [ -n "$others" ] || exit 0
printf '%s\n' "${others:-tar ended with $code}" | { read -r line && echo "$line" >&2; }
exit 1
