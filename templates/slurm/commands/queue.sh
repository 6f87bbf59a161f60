#!/bin/sh
# For find.sh and list.sh, in front of them.
#
# ask_queue OPTION…: what squeue answers as $said. It asks the controller one thing less where it need not look
# for other clusters; of a federation it says REVOKED of a job that another of its clusters has.
ask_queue() {
  said=$(squeue --local --noheader --states=all "$@" 2>&1) || return
  case $said in *'|REVOKED|'*) said=$(squeue --federation --noheader --states=all "$@" 2>&1) ;; esac
}

