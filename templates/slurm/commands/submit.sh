#!/bin/sh
# submit.sh JOB LOG BEGIN END: makes the folder JOB, below dtrain's own, of what is on stdin, and gives its
# script to Slurm, which writes to LOG in it: a line of how many bytes of sh set `script` and make the other
# files, those bytes, and then its code as a compressed archive, where it has some. Its record is BEGIN, the
# job's number and END. Prints the number; "taken" where there is such a folder.
# Each program that it starts is a part of what a user waits for: sbatch is started at once, and waits for the
# script.
folder=${XDG_STATE_HOME:-$HOME/.local/state}/dtrain/$1
unset DTRAIN_GIT_TOKEN
fail() { exit 1; }
make() {
  umask 077
  [ -d "${folder%/*}" ] || mkdir -p "${folder%/*}" || fail
  mkdir "$folder" 2>/dev/null || {
    if [ -d "$folder" ]; then echo @taken >&3; else mkdir "$folder"; fi
    fail
  }
  echo @made >&3
  cd "$folder" || fail
  read -r size
  eval "$(head -c "$size")"
  [ -z "$has_code" ] || { mkdir code && tar -xzf - -C code; } || fail
  printf %s "$script" >script.sbatch || fail
  printf %s "$script"
}
# The job has the user's own mask. Without a script sbatch takes none.
said=$({ make | sbatch --parsable --output="$folder/$2" --open-mode=append 2>&1; } 3>&1)
code=$?
case $said in
  *@taken*)
    echo taken
    exit 0
    ;;
  *@made*) cd "$folder" || exit ;;
  *) code=1 ;;
esac
[ "$code" = 0 ] || {
  printf '%s\n' "$said" | sed '/^@made$/d' >&2
  case $said in *@made*) cd / && rm -rf "$folder" ;; esac
  exit "$code"
}
printf '%s\n' "$said" >sbatch.err
# sbatch may warn, too: the number is the last that it says.
id=${said##*
}
id=${id%%;*}
printf %s%s%s "$3" "$id" "$4" >job # In one write: it is there whole.
echo "$id"
