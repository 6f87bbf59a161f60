#!/bin/sh
# Every rank's first step: from the Pod's index to the environment of dtrain-environment(7), then
# the command in this shell's place.
rank=$JOB_COMPLETION_INDEX
{{#environment}}
export {{name}}={{value}}
{{/environment}}
export RANK="$rank" NODE_RANK="$rank" GROUP_RANK="$rank" ROLE_RANK="$rank"
export TF_CONFIG={{tf_config_head}}"$rank"{{tf_config_tail}}
export DTRAIN_RESTART_COUNT="${DTRAIN_RESTART_COUNT:-0}"
export TORCHELASTIC_RESTART_COUNT="$DTRAIN_RESTART_COUNT" TORCHELASTIC_RUN_ID="$DTRAIN_JOB_UID"
# An image made for root has a home that our user cannot write.
[ -w "${HOME:-/}" ] || export HOME=/tmp
{{#user_environment}}
export {{name}}={{value}}
{{/user_environment}}
exec{{#env_program}} env{{#odd_environment}} {{assignment}}{{/odd_environment}}{{/env_program}}{{#command}} {{word}}{{/command}}
