// The variables of the environment that our programs read beside those of their options
// (Option::env). A backend brings those that only it reads (Engine::variables).
#pragma once

#include <vector>

namespace dtrain {

/// One struct for each variable; no variable is read by any other name. dtrain-environment(7) is
/// generated from the tables below.
struct EnvironmentVariable {
  const char* name;
  const char* help; ///< Sentences, without the last full stop.

  /// Null if it is unset or empty.
  const char* value() const;
};

namespace environment {

inline constexpr EnvironmentVariable k_trainer = {
    "DTRAIN_TRAINER", "Path of the dtrain-trainer that jobs without a command of their own run "
                      "(default: the one beside dtrain)"};
inline constexpr EnvironmentVariable k_git_token = {
    "DTRAIN_GIT_TOKEN",
    "Token for --sync-source. It appears in no argument, plan or log, and ranks do not get it"};
inline constexpr EnvironmentVariable k_cgroups = {
    "DTRAIN_CGROUPS",
    "Control groups to run jobs of this machine in, so that all their processes "
    "can be ended: v2, v1 or none (default: the first that this user may create)"};
inline constexpr EnvironmentVariable k_state_home = {
    "XDG_STATE_HOME",
    "Folder of the state of jobs that no queue or cluster keeps, in dtrain/jobs (default: "
    "~/.local/state)"};
inline constexpr EnvironmentVariable k_config_home = {
    "XDG_CONFIG_HOME", "Folder of the settings: profiles and names of data and code in "
                       "dtrain/config.yaml, secrets in dtrain/secrets (default: ~/.config)"};
inline constexpr EnvironmentVariable k_cache_home = {
    "XDG_CACHE_HOME", "Folder of the cache: copies of buckets, and data sets that the bundled "
                      "trainer has downloaded (default: ~/.cache)"};
inline constexpr EnvironmentVariable k_certificates = {
    "SSL_CERT_FILE", "Certificates of the trusted authorities (default: the system's)"};
inline constexpr EnvironmentVariable k_no_color = {"NO_COLOR", "If set: never use colour"};
inline constexpr EnvironmentVariable k_force_color = {
    "FORCE_COLOR", "If set: use colour even if the output is not a terminal"};
inline constexpr EnvironmentVariable k_cpu_kernels = {
    "DTRAIN_CPU_KERNELS", "CPU instructions to compute with: portable, avx2 or avx512 (default: "
                          "the fastest that the machine has). avx2 and avx512 give the same bits; "
                          "a job may not mix them with portable. Setting this turns AMX off; with "
                          "--precision=bf16 a job may not mix ranks with and without AMX"};
inline constexpr EnvironmentVariable k_data_url = {
    "DTRAIN_DATA_URL",
    "Mirror from which the bundled trainer downloads known data sets, with a folder for each"};

} // namespace environment

/// Variables that dtrain reads with every backend, and those of the bundled trainer.
const std::vector<EnvironmentVariable>& variables_of_dtrain();
const std::vector<EnvironmentVariable>& variables_of_trainer();

} // namespace dtrain
