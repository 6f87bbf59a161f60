# Ends and takes away what a job left on a host, over ssh, behind facts.sh; says on a line what it cannot.
# Words: the job's uid. On a disk that hosts share others are at it too.
if [ -n "$1" ]; then
  folder=$store/hosts/$1
  why=
  # shellcheck disable=SC2086,SC2116 # numbers, on lines of their own
  kill_job "$1" || why="processes survived SIGKILL: $(echo $left) (see ps -o pid,stat,wchan)"
  said=$(rm -rf "$folder" 2>&1) || [ ! -e "$folder" ] || why=${why:+$why; }$(say "$said" | tail -n 1)
  [ -z "$why" ] || say "$why"
fi
