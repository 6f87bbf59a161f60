# What a launcher starts its workers by, on each host of the job.
put() {
  mkdir -p "$run/bin" && printf %s "$2" >"$run/bin/$1.$id" && chmod 700 "$run/bin/$1.$id" &&
    mv "$run/bin/$1.$id" "$run/bin/$1"
}

# On top of the rank's. Open MPI does not run as root unless it is told that it may.
launcher_variables() {
  export PATH="$run/bin:$PATH" PDSH_RCMD_TYPE=ssh
  [ "$(id -u)" != 0 ] || export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
}
