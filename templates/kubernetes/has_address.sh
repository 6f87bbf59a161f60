{{! has_address HOST: whether the cluster's DNS knows an instance of a job with --role-sequence. }}
if command -v getent >/dev/null; then
  has_address() { getent hosts "$1"; }
elif command -v nslookup >/dev/null; then
  # Of busybox, which leaves the search list aside.
  while read -r word first _; do
    [ "$word" != search ] || domain="$first"
  done </etc/resolv.conf
  has_address() { nslookup "$1.$domain"; }
else
  echo "dtrain: --role-sequence needs getent or nslookup in the image" >&2
  exit 1
fi
