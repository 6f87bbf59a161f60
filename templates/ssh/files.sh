#!/bin/sh
# In front of files/pack.sh, over ssh. Words: the job's uid, the host's own number in it, the folder that
# its instances are started in, the path.
case ${XDG_STATE_HOME-} in /*) ;; *) XDG_STATE_HOME=$HOME/.local/state ;; esac
case $3 in
  /*) set -- "$3" "$4" ;;
  *) set -- "$XDG_STATE_HOME/dtrain/hosts/$1/$2/$3" "$4" ;;
esac
