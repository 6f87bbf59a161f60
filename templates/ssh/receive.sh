# A request of the agent's on a host of a job, behind sums.sh: keeps what has come as a tar archive, of so
# many bytes, and its sums. What nobody asked for in a month goes.
receive() { # receive BYTES
  cache=${XDG_CACHE_HOME:-$HOME/.cache}/dtrain/ssh
  new=$cache/new.$$
  archive=$run/upload.$agent
  umask 077
  if [ "$(wc -c <"$archive")" -ne "$1" ]; then
    rm -f "$archive"
    echo "cannot write in $run: disk full, read-only, or owned by another user" >&2
    return 1
  fi
  if ! mkdir -p "$new" || ! tar -xf "$archive" -C "$new"; then
    rm -rf "$new" "$archive"
    return 1
  fi
  rm -f "$archive"
  cd "$new" || return
  for each in *; do
    sums_of "$each" >"$each.sums" && mv "$each.sums" "$cache" # First: one without them is not trusted.
    [ -e "$cache/$each" ] || mv "$each" "$cache"
  done
  rm -rf "$new"
  find "$cache/." ! -name . -prune -mtime +30 -exec rm -rf {} +
}
