#!/bin/sh
# For find.sh, list.sh and the queue-neutral submit.sh (templates/batch), in front of them.
#
# cluster_here: the cluster that Slurm's commands ask here, as slurm.conf names it; nothing where it is not known.
cluster_here() {
  if [ -n "${SLURM_CLUSTERS-}" ]; then
    echo "$SLURM_CLUSTERS"
    return
  fi
  if [ -n "${SLURM_CONF-}" ]; then
    set -- "$SLURM_CONF"
  else
    set -- /etc/slurm/slurm.conf /run/slurm/conf/slurm.conf /etc/slurm-llnl/slurm.conf /usr/local/etc/slurm.conf
  fi
  sed -n 's/^[[:blank:]]*[Cc]luster[Nn]ame[[:blank:]]*=[[:blank:]]*\([^[:space:]#"\]*\).*/\1/p' "$@" 2>/dev/null | sed q
}

