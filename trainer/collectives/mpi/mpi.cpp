#include "trainer/collectives/mpi/mpi.h"

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>

#include "submit/options/this_program.h"
#include "trainer/collectives/job_communicator.h"
#include "trainer/collectives/single_rank.h"
#include "trainer/entropy.h"
#include "trainer/errors.h"
#include "trainer/job/rendezvous.h"

namespace trainer {
namespace {

constexpr const char* k_plugin = "dtrain-mpi.so";
constexpr std::size_t k_text = 256;
constexpr std::size_t k_token_bytes = 32;

/// Variables of PMI, by which a process of MPI finds the others: set by mpirun, or srun with --mpi.
bool was_started_for_mpi() {
  return std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr || std::getenv("PMIX_RANK") != nullptr;
}

std::filesystem::path plugin_path() { return dtrain::this_program().parent_path() / k_plugin; }

/// Bound, but not listening: rank 0's rendezvous can listen there, no other program gets it.
Fd hold_port(const Address& address) {
  Fd fd(socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int one = 1;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.length) != 0) {
    throw LinkError(fmt::format("{}: {}", address.text(), error_text(errno)));
  }
  return fd;
}

std::string random_token() {
  return fmt::format("{:02x}",
                     fmt::join(random_value<std::array<std::uint8_t, k_token_bytes>>(), ""));
}

} // namespace

std::unique_ptr<Mpi> Mpi::load(const std::string& what_for, const std::string& instead) {
  if (!was_started_for_mpi()) {
    throw ClusterError(fmt::format("{}: mpirun did not start this process; use mpirun -np N "
                                   "dtrain-trainer, or {}",
                                   what_for, instead));
  }
  const std::filesystem::path path = plugin_path();
  std::error_code missing;
  if (!std::filesystem::exists(path, missing)) {
    throw ClusterError(fmt::format("{}: no {}; install libopenmpi-dev and rebuild dtrain, or {}",
                                   what_for, path.string(), instead));
  }
  // Open MPI loads parts of itself, which look for its symbols among the program's.
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE);
  void* symbol = library == nullptr ? nullptr : dlsym(library, DTRAIN_MPI_SYMBOL);
  if (symbol == nullptr) {
    const char* why = dlerror();
    throw ClusterError(fmt::format("{}: {}; install openmpi-bin, or {}", what_for,
                                   why == nullptr ? path.string() + " cannot be loaded" : why,
                                   instead));
  }
  const DtrainMpi* table = reinterpret_cast<const DtrainMpi* (*)()>(symbol)();
  if (table == nullptr || table->version != k_dtrain_mpi_version) {
    throw ClusterError(
        fmt::format("{}: {} belongs to another version of dtrain-trainer; reinstall both", what_for,
                    path.string()));
  }
  return std::make_unique<Mpi>(*table);
}

Mpi::Mpi(const DtrainMpi& table) : table_(table), exceptions_(std::uncaught_exceptions()) {
  check(table_.initialize(&rank_, &world_size_), "MPI_Init_thread");
}

Mpi::~Mpi() {
  if (!gave_up_ && std::uncaught_exceptions() <= exceptions_) {
    table_.finalize();
  }
}

std::string Mpi::library() const {
  std::array<char, k_text> text{};
  check(table_.library(text.data(), text.size()), "MPI_Get_library_version");
  return text.data();
}

void Mpi::check(int error, const std::string& what) const {
  if (error != 0) {
    std::array<char, k_text> text{};
    table_.text(error, text.data(), text.size());
    throw PeerError(fmt::format("MPI: {} on rank {}: {}", what, rank_, text.data()));
  }
}

void Mpi::broadcast(std::span<std::byte> bytes) {
  void* request = nullptr;
  check(table_.broadcast(bytes.data(), bytes.size(), 0, &request), "broadcast");
  for (int done = 0; done == 0;) {
    check(table_.test(request, &done), "broadcast");
    sched_yield();
  }
}

Fd agree_where_to_meet(Cluster& cluster) {
  const auto mpi = Mpi::load("MASTER_ADDR is not set", "set MASTER_ADDR and MASTER_PORT");
  return agree_where_to_meet(*mpi, cluster);
}

Fd agree_where_to_meet(Mpi& mpi, Cluster& cluster) {
  struct Meeting {
    std::array<char, 256> host{};
    std::array<char, 2 * k_token_bytes + 1> token{};
    std::int32_t port = 0;
  } place;
  Fd held;
  if (mpi.rank() == 0) {
    const bool one_host = cluster.local_world_size == cluster.world_size;
    const std::string host =
        one_host ? "127.0.0.1" : introduce_self(LinkPurpose::rendezvous, 0, 1).host;
    held = hold_port(one_host ? resolve(host, 0).front() : any_address(AF_INET, 0));
    host.copy(place.host.data(), place.host.size() - 1);
    random_token().copy(place.token.data(), place.token.size() - 1);
    place.port = local_address(held).port();
  }
  mpi.broadcast(std::as_writable_bytes(std::span(&place, 1)));
  cluster.master_addr.assign(place.host.data(), strnlen(place.host.data(), place.host.size()));
  cluster.master_port = place.port;
  if (cluster.job_token.empty()) {
    cluster.job_token.assign(place.token.data(), place.token.size() - 1);
  }
  return held;
}

std::unique_ptr<Communicator> connect_mpi(const Cluster& given, const CommOptions& options) {
  auto mpi = Mpi::load("--communication=mpi", "use --communication=ring");
  if (mpi->world_size() == 1 && given.world_size == 1) {
    return make_single_rank();
  }
  Cluster cluster = given;
  if (mpi->rank() != cluster.rank || mpi->world_size() != cluster.world_size) {
    throw ClusterError(fmt::format("--communication=mpi: MPI says rank {} of {}, {} says {} of {}; "
                                   "unset the variables that mpirun did not set",
                                   mpi->rank(), mpi->world_size(), cluster.source, cluster.rank,
                                   cluster.world_size));
  }
  const Fd held = cluster.master_port == 0 ? agree_where_to_meet(*mpi, cluster) : Fd();
  Star star(cluster, options);
  auto health = std::make_unique<Health>(cluster.rank, star.who(), star.release_links(), options);
  auto transport = make_mpi(std::move(mpi), *health);
  std::string description = fmt::format("{}, {} ranks", transport->describe(), cluster.world_size);
  return make_job_communicator(cluster.rank, cluster.world_size, std::move(health),
                               std::move(transport), std::move(description));
}

} // namespace trainer
