
# Takes away what a job left on a host, over ssh, behind facts.sh; says what it cannot. Words: the job's
# uid. On a disk that hosts share others are at it too.
folder=$store/hosts/$1
if [ -n "$1" ] && [ -e "$folder" ]; then
  why=$(rm -rf "$folder" 2>&1) || [ ! -e "$folder" ] || printf '%s\n' "$why" | tail -n 1
fi
