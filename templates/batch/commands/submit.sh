#!/bin/sh
# submit.sh JOB SCRIPT BEFORE AFTER WIDTH COMMAND…: makes the folder JOB, below dtrain's own, of what is on stdin,
# with its script as the file SCRIPT, which it gives to the queue by COMMAND, in whose words @FOLDER@ stands for the
# folder: a line of how many bytes of sh set `script` and make the other files, those bytes, and then its code as a
# compressed archive, where it has some. Its record is BEFORE, the job's number in WIDTH bytes and AFTER: it is there
# before the queue has the job, and found by its comment where the number cannot be written down. Prints the number;
# "taken" where there is such a folder.
# Each program that it starts is a part of what a user waits for: COMMAND is started at once, and waits for the
# script. Nothing is left half done by a signal: it waits.
# The queue's own cluster.sh comes before it: cluster_here.
trap '' INT TERM HUP
folder=$XDG_STATE_HOME/dtrain/$1
job_script=$2 before=$3 after=$4 width=$5
# Where, and when by the clock that the queue has: who asks from another machine knows neither.
case $before in
  *'"cluster":""'*) before=${before%%'"cluster":""'*}'"cluster":"'$(cluster_here)'"'${before#*'"cluster":""'} ;;
esac
case $after in
  *'"submitted":0'*) after=${after%%'"submitted":0'*}'"submitted":'$(date +%s)${after#*'"submitted":0'} ;;
esac
shift 5
for word; do
  shift
  case $word in *@FOLDER@*) word=${word%%@FOLDER@*}$folder${word#*@FOLDER@} ;; esac
  set -- "$@" "$word"
done
unset DTRAIN_GIT_TOKEN
fail() { exit 1; }
make() {
  umask 077
  [ -d "${folder%/*}" ] || mkdir -p "${folder%/*}" || fail
  # What a submission left that was ended before it wrote down anything is no job.
  [ -e "$folder/job" ] || [ -z "$(find "$folder" -maxdepth 0 -mmin +1 2>/dev/null)" ] || rm -rf "$folder"
  mkdir "$folder" 2>/dev/null || {
    if [ -d "$folder" ]; then echo @taken >&3; else mkdir "$folder"; fi
    fail
  }
  echo @made >&3
  cd "$folder" || fail
  printf "%s%-${width}s%s" "$before" '""' "$after" >job || fail
  read -r size
  eval "$(head -c "$size")"
  [ "$whole" = yes ] || fail # The rest did not come.
  [ -z "$has_code" ] || { mkdir code && tar -xzf - -C code; } || fail
  printf %s "$script" >"$job_script" || fail
  printf %s "$script"
}
whole=''
# The job has the user's own mask. Without a script COMMAND takes none.
said=$({ make | "$@" 2>&1; } 3>&1)
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
# It may warn, too: the number is the last that it says.
id=${said##*
}
id=${id%%;*}
printf "%s%-${width}s%s" "$before" "\"$id\"" "$after" 1<>job 2>/dev/null # Over what is there, which a full disk has room for.
printf '%s\n' "$said" 2>/dev/null >submit.err
echo "$id"
