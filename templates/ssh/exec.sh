
# Runs a command beside an instance of a job on its host, over ssh: with its variables, in its folder.
# Words: the job's uid, the instance, the command's.
uid=$1
instance=$2
shift 2
case ${XDG_STATE_HOME-} in /*) ;; *) XDG_STATE_HOME=$HOME/.local/state ;; esac
for file in "$XDG_STATE_HOME/dtrain/hosts/$uid"/*/at.*; do
  { read -r pid _ <"$file"; } 2>/dev/null || continue
  its=/proc/$pid/environ
  if grep -szqxF "DTRAIN_PROCESS=${file##*/at.}" "$its" &&
    grep -szqxF "DTRAIN_INSTANCE=$instance" "$its"; then
    variables=$(variables_of "$pid")
    cd "$(readlink "/proc/$pid/cwd")" || exit
    eval "$variables"
    exec "$@"
  fi
done
echo "dtrain: $instance has ended, so there is nothing to exec into" >&2
exit 1
