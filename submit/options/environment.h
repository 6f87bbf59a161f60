// The variables of the environment that our programs read beside those of their options
// (Option::env).
#pragma once

#include <vector>

namespace dtrain {

/// One struct a variable: what is read by another name is read by nobody. dtrain-environment(7) is
/// made from the tables below.
struct EnvironmentVariable {
  const char* name;
  const char* help; ///< Sentences, without the last full stop.

  /// Null where it is unset or empty.
  const char* value() const;
};

namespace environment {

inline constexpr EnvironmentVariable k_trainer = {
    "DTRAIN_TRAINER", "Path of the dtrain-trainer that jobs without a command of their own run "
                      "(default: the one beside dtrain)"};
inline constexpr EnvironmentVariable k_local_gpus = {
    "DTRAIN_LOCAL_GPUS",
    "How many GPUs this machine has, where counting them goes wrong: the first N of "
    "CUDA_VISIBLE_DEVICES where that is set. On a host that ssh reaches, in the environment of a "
    "login there"};
inline constexpr EnvironmentVariable k_gpu_claims = {
    "DTRAIN_GPU_CLAIMS",
    "Folder, of this machine and this user alone, in which jobs note which GPUs their ranks hold, "
    "those that are started here and those that come over ssh (default: "
    "dtrain/gpus@HOST in XDG_STATE_HOME). All of them must have the same one; on a host that ssh "
    "reaches, "
    "in the environment of a login there. A rank's GPUs are free again when it has ended, however "
    "it ended"};
inline constexpr EnvironmentVariable k_git_token = {
    "DTRAIN_GIT_TOKEN", "Token of --sync-source. It is in no argument, plan or log, and the ranks "
                        "do not have it"};
inline constexpr EnvironmentVariable k_cgroups = {
    "DTRAIN_CGROUPS", "Which control groups jobs on this machine are put into, so that all their "
                      "processes can be ended: v2, v1 or none (default: the first that this user "
                      "may make)"};
inline constexpr EnvironmentVariable k_state_home = {
    "XDG_STATE_HOME",
    "Where the jobs of this machine and of ssh hosts are kept, in dtrain/jobs (default: "
    "~/.local/state)"};
inline constexpr EnvironmentVariable k_config_home = {
    "XDG_CONFIG_HOME",
    "Where the profiles and the names of data and code are, in dtrain/config.yaml, and secrets, in "
    "dtrain/secrets (default: ~/.config)"};
inline constexpr EnvironmentVariable k_cache_home = {
    "XDG_CACHE_HOME", "Where what can be fetched again is kept: copies of buckets, and the data "
                      "sets that the bundled trainer has downloaded (default: ~/.cache)"};
inline constexpr EnvironmentVariable k_wcoll = {
    "WCOLL", "File of the hosts of ssh jobs, in any form that --hostfile takes, where neither "
             "--hosts nor --hostfile is given; pdsh reads it too"};
inline constexpr EnvironmentVariable k_certificates = {
    "SSL_CERT_FILE", "Certificates of those that sign servers' (default: the system's)"};
inline constexpr EnvironmentVariable k_no_color = {"NO_COLOR", "If set: never use colour"};
inline constexpr EnvironmentVariable k_force_color = {
    "FORCE_COLOR", "If set: use colour even if the output is not a terminal"};
inline constexpr EnvironmentVariable k_cpu_kernels = {
    "DTRAIN_CPU_KERNELS",
    "The instructions that it computes with: portable, avx2 or avx512 (default: the fastest that "
    "the machine has). The last two give the same bits; ranks of which some compute with the first "
    "are refused. With --precision=bf16 so are ranks of which some have AMX, which this turns off "
    "where it is set"};
inline constexpr EnvironmentVariable k_data_url = {
    "DTRAIN_DATA_URL", "Where the bundled trainer downloads known data sets from, instead of their "
                       "own sites: below this address, a folder each"};

} // namespace environment

/// What dtrain reads, by name; and what the bundled trainer does.
const std::vector<EnvironmentVariable>& variables_of_dtrain();
const std::vector<EnvironmentVariable>& variables_of_trainer();

} // namespace dtrain
