#!/bin/sh
# Brings the job's code before a Pod's command starts. The token is in the environment alone.
export GIT_TERMINAL_PROMPT=0 HOME=/tmp
cd {{folder}} || exit
if ! command -v git >/dev/null; then
  echo "dtrain: the image has no git, needed to clone the code: give one that has it by --sync-image" >&2
  exit 127
fi
# What a volume's owner is does not matter here.
run() {
  git -c safe.directory='*' -c advice.detachedHead=false -c \
    credential.helper='!f() { echo "username=$DTRAIN_GIT_USER"; echo "password=$DTRAIN_GIT_TOKEN"; }; f' \
    "$@"
}
url={{url}} ref={{ref}}
run init --quiet || exit
# Not every server gives a part of the history.
run fetch --quiet --depth=1 -- "$url" "$ref" 2>/dev/null || run fetch --quiet -- "$url" "$ref" || exit
run checkout --quiet FETCH_HEAD || exit
# Arena has it at code/NAME. A repository may have a file of that name.
name={{name}}
mkdir -p code && [ -e "code/$name" ] || ln -s .. "code/$name" || true
