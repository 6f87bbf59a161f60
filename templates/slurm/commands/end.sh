#!/bin/sh
# For the queue-neutral remove.sh (templates/batch), in front of it.
look='scontrol show job'

# unended_jobs JOBID NAME: "NUMBER|SUBMITTED|COMMENT" of what has not ended of the job with that number, or, without
# one, of the user's jobs of that name. Fails with what Slurm said where it gave no answer.
unended_jobs() {
  if [ -n "$1" ]; then set -- --jobs="$1"; else set -- --me --name="$2"; fi
  said=$(squeue --noheader --states=all "$@" --format='%F|%T|%V|%k' 2>&1) || case $said in
    *'Invalid job id'*) return 0 ;; # Slurm has forgotten it.
    *)
      printf '%s\n' "${said:-squeue does not answer}"
      return 1
      ;;
  esac
  printf '%s\n' "$said" | awk -F'|' -v OFS='|' '
    NF >= 4 && $2 ~ /RUNNING|COMPLETING|PENDING|SUSPENDED|STOPPED|CONFIGURING|SIGNALING|RESIZING|STAGE_OUT|REQUEUE|SPECIAL_EXIT|RESV_DEL_HOLD|EXPEDITING/ { print $1, $3, $4 }'
}

end_jobs() { scancel --quiet "$@"; }

