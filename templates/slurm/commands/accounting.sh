#!/bin/sh
# For find.sh and list.sh, which are in dtrain's folder of Slurm's jobs, and read this where they need it.
#
# tell_forgotten FIELDS: of records and squeue's lines, what there is to say of the jobs of which neither has
# how they ended, as squeue does: what Slurm wrote into the job's own log as it ended it; else sacct's FIELDS;
# else, where the cluster has no accounting, the file that it notes ended jobs in. "? WHY" where accounting
# does not answer.
tell_forgotten() {
  said=$(awk '
    $1 == "job" { # Once, until the job has begun.
      if (!match($0, /"id":"[0-9]+"/)) next
      id = substr($0, RSTART + 6, RLENGTH - 7)
      match($0, /"name":"[^"]*"/); name = substr($0, RSTART + 8, RLENGTH - 9)
      match($0, /"namespace":"[^"]*"/); job = substr($0, RSTART + 13, RLENGTH - 14) "/" name
      ids[job] = id
      logs[job] = job "/slurm.log"
      if (match($0, /"tasks":[0-9]+/)) tasks[job] = substr($0, RSTART + 8, RLENGTH - 8)
    }
    $1 == "run" || $1 == "end" { # NAMESPACE INDEX/NAME of the task of an array.
      part = index($3, "/")
      array = $2 "/" substr($3, part + 1)
      index_of = part ? substr($3, 1, part - 1) : ""
      job = $2 "/" $3
    }
    $1 == "run" {
      ids[job] = part ? ids[array] "_" index_of : $6
      if (part) logs[job] = array "/slurm-" index_of ".log"
      delete ended[job]
    }
    $1 == "end" {
      if (part && !(job in ended)) ended_tasks[array]++
      ended[job]
    }
    /^[0-9_]+[^|]*[|]/ {
      id = substr($0, 1, index($0, "|") - 1)
      known[id]
      if (sub(/_.*/, "", id)) known[id]
    }
    END {
      for (job in ids) {
        if (job in ended || ids[job] in known || (job in tasks && ended_tasks[job] == tasks[job])) continue
        words = ""
        while ((getline line <logs[job]) > 0)
          if (line ~ /[*][*][*] JOB .* CANCELLED AT /) words = line
        close(logs[job])
        state = words ~ /DUE TO TIME LIMIT/ ? "TIMEOUT" : words ~ /DUE TO PREEMPTION/ ? "PREEMPTED" \
          : words ~ /DUE TO NODE FAIL/ ? "NODE_FAIL" : words ~ /DUE TO JOB REQUEUE/ ? "" : "CANCELLED"
        if (words && state) {
          sub(/.* CANCELLED AT /, "", words)
          lines = lines "\n" ids[job] "|" state "||||" substr(words, 1, 19) "|||"
        } else
          list = list (list ? "," : "") ids[job]
      }
      print list lines
    }')
  [ -n "$said" ] || return 0
  printf '%s\n' "$said" | sed 1d | in_seconds
  ids=$(printf '%s\n' "$said" | sed 1q)
  [ -z "$ids" ] || ask_accounting "$ids" "$1"
}

ask_accounting() {
  if said=$(sacct --noheader --parsable2 --allocations --jobs="$1" --format="$2" 2>&1); then
    printf '%s\n' "$said" |
      grep -vE '^[^|]*[|](RUNNING|PENDING|SUSPENDED|RE)' || : # What it never heard the end of is none.
    return
  fi
  case $said in
    *disabled*) ;;
    *) echo "? $(printf '%s\n' "$said" | sed -n '1s/^sacct: error: //p')" ;;
  esac
  file=$(scontrol show config 2>/dev/null | awk '
    $1 == "JobCompType" { is_file = $3 == "jobcomp/filetxt" }
    $1 == "JobCompLoc" { place = $3 }
    END { if (is_file) print place }')
  [ ! -r "$file" ] || awk -v ids="$1" '
    BEGIN { split(ids, list, ","); for (i in list) wanted[list[i]] }
    {
      split("", value)
      for (i = 1; i <= NF; i++) {
        mark = index($i, "=")
        value[substr($i, 1, mark - 1)] = substr($i, mark + 1)
      }
      array = value["ArrayJobId"]
      id = array ? array "_" value["ArrayTaskId"] : value["JobId"]
      if ((id in wanted || array in wanted) && value["JobState"] !~ /PENDING|REQUEUED/)
        last[id] = value["JobState"] "|" value["ExitCode"] "|" value["SubmitTime"] "|" \
          value["StartTime"] "|" value["EndTime"] "|" value["NodeList"] "|" value["Partition"] "|"
    }
    END { for (id in last) print id "|" last[id] }' "$file" | in_seconds
}

# Of lines whose times are Slurm's own, 2026-11-23T04:55:23, those as squeue's are.
in_seconds() {
  lines=$(cat)
  [ -z "$lines" ] || {
    printf '%s\n' "$lines" | tr '|' '\n' | grep -x '[0-9-]*T[0-9:]*' | sort -u | date -f - '+%FT%T %s'
    printf '%s\n' "$lines"
  } | awk '
    BEGIN { FS = OFS = "|" }
    !/[|]/ { split($0, words, " "); seconds[words[1]] = words[2]; next }
    { for (i = 4; i <= 6; i++) if ($i in seconds) $i = seconds[$i]; print }'
}

