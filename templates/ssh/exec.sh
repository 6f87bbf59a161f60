# Runs a command beside an instance of a job on its host, over ssh: with its variables, in its folder.
# Words: the job's uid, the instance, the command's.
uid=$1
instance=$2
shift 2
for file in "/tmp/dtrain-job-$uid"/at.*; do
  { read -r pid <"$file"; } 2>/dev/null || continue
  its=/proc/$pid/environ
  if grep -szqxF "DTRAIN_JOB_UID=$uid" "$its" && grep -szqxF "DTRAIN_INSTANCE=$instance" "$its"; then
    variables=$(sed -z -n "/^\(_\|UID\|EUID\|PPID\|BASHOPTS\|SHELLOPTS\)=/d
      /^[A-Za-z_][A-Za-z0-9_]*=/{s/'/'\\\\''/g;s/=/='/;s/\$/'/;s/^/export /;p}" "$its" | tr '\0' '\n')
    cd "$(readlink "/proc/$pid/cwd")" || exit
    eval "$variables"
    exec "$@"
  fi
done
echo "dtrain: $instance has ended: nothing can be run beside it any more" >&2
exit 1
