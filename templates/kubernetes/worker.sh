#!/bin/sh
# A worker that a launcher reaches by ssh: runs sshd until the launcher says that it is done, or is
# gone. sshd gives each command of the launcher's to this file ("session"), which runs it with the
# environment of this container.
state=/dev/shm/dtrain
launcher={{launcher_host}}

if [ "${1-}" = beside ]; then # dtrain exec
  # shellcheck source=/dev/null
  . "$state/environment"
  export DTRAIN_EXEC="$2"
  shift 2
  exec "$@"
fi

if [ "${1-}" = session ]; then
  ask=${SSH_ORIGINAL_COMMAND-}
  case $ask in
    dtrain-ready) exit ;;
    dtrain-end) : >"$state/ended"; kill "$(cat "$state/sshd")"; exit ;;
    dtrain-clear)
      # Each session leads a process group.
      for file in "$state"/sessions/*; do kill -KILL "-${file##*/}"; rm -f "$file"; done 2>/dev/null
      exit
      ;;
  esac
  : >"$state/sessions/$$"
  # shellcheck source=/dev/null
  . "$state/environment"
  cd "$PWD" || exit
  [ -n "$ask" ] || exec "${SHELL:-/bin/sh}"
  exec "${SHELL:-/bin/sh}" -c "$ask"
fi

# A Pod that has ended has no name any more: a moment lets the launcher see that there was one.
give_up() {
  echo "dtrain: $1" >&2
  sleep 10
  exit "$2"
}

# What --env-file and --secret hold.
[ ! -r /etc/dtrain-environment/environment ] || . /etc/dtrain-environment/environment
{{#user_environment}}
export {{name}}={{value}}
{{/user_environment}}
[ -w "${HOME:-/}" ] || export HOME=/tmp
rm -rf "$state"
(umask 077 && mkdir -p "$state/sessions" && export -p >"$state/environment") || exit
PATH=$PATH:/usr/sbin:/usr/local/sbin
sshd=$(command -v sshd) || give_up 'the image has no sshd, by which a launcher reaches its workers' 127
id -un >/dev/null 2>&1 ||
  give_up "the image has no user $(id -u), and sshd needs one: add it, or use --run-as-user=N" 1
[ "$(id -u)" -ne 0 ] || mkdir -p /run/sshd
"$sshd" -D -e -f /etc/dtrain/sshd_config &
sshd=$!
echo "$sshd" >"$state/sshd"
told=
trap 'told=1; kill "$sshd"' TERM
(
  command -v getent >/dev/null || exit
  seen= gone=0
  while [ "$gone" -lt 12 ]; do
    if getent hosts "$launcher" >/dev/null 2>&1; then
      seen=1 gone=0
    else
      gone=$((gone + ${seen:-0}))
    fi
    sleep 5
  done
  : >"$state/ended"
  kill "$sshd"
) &
while :; do
  wait "$sshd"
  code=$?
  kill -0 "$sshd" 2>/dev/null || break
done
[ -z "$told" ] || exit 143
[ -e "$state/ended" ] || give_up "sshd ended with exit code $code" 1
