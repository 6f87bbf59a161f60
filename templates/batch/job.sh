# What the rank in that place has of its role.
set_role() {
{{#roles}}
  if is_in {{first}} {{end}} {{role}} {{type}} {{gpus}} {{view}}; then
{{#environment}}
    export {{name}}={{value}}
{{/environment}}
{{#ranked}}
    set_rank
{{/ranked}}
{{#torchrun}}
    export PET_NODE_RANK="$place"
{{/torchrun}}
  fi
{{/roles}}
}

# What its node must have.
check_node() {
  :
{{#data}}
  need_data {{word}}
{{/data}}
{{#checks_gpus}}
  need_good_gpus
{{/checks_gpus}}
{{#measures_gpus}}
  need_measured_gpus {{trainer}}
{{/measures_gpus}}
}

# Once it is known where all ranks are.
set_cluster() {
  export MASTER_ADDR MASTER_PORT
{{^launcher}}
  set_tf_config
{{/launcher}}
{{#launcher}}
  unset CUDA_VISIBLE_DEVICES
{{#gpus_per_task}}
  show_launcher_gpus
{{/gpus_per_task}}
  [ "$(id -u)" != 0 ] || export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
{{/launcher}}
{{#deepspeed}}
  export PATH="$folder/bin:$PATH"
  check_ssh
{{/deepspeed}}
{{#torchrun}}
  export PET_MASTER_ADDR="$MASTER_ADDR" PET_MASTER_PORT="$MASTER_PORT"
{{/torchrun}}
}

# The command, with the variables of --env, --env-file and --secret.
set_variables() {
  [ ! -e "$folder/secrets" ] || . "$folder/secrets"
{{#user_environment}}
  export {{name}}={{value}}
{{/user_environment}}
}
run_command() {
  exec{{#command}} {{word}}{{/command}}
}

# Before the first run.
prepare() {
  :
{{#deepspeed}}
  mkdir -p "$folder/bin"
  printf '%s' {{tool}} >"$folder/bin/deepspeed"
  chmod 700 "$folder/bin/deepspeed"
{{/deepspeed}}
}
