// MPI, loaded at run time: collectives carried by the library of the mpirun that started the job.
//
// The plug-in dtrain-mpi.so lies beside the program; it is built where Open MPI's headers are (see
// plugin.h). MPI carries the bytes and this rank adds up, in the ring's order:
//
//   reduce_scatter   MPI_Ialltoallv: every rank gets its own chunk of all the others, and adds up
//   all_gather       MPI_Iallgatherv
//   all_reduce       both, one after the other; each rank sends 2(n-1)/n S bytes
//
// so that the two halves of a sum have its bits, and a sum those of every other transport. MPI
// moves on what is under way whenever it is called, so every start also tests what went before.
//
// Beside MPI goes the heartbeat, over TCP, as for the ring: MPI waits without end for a rank that
// is stopped or cut off, the heartbeat names it within the peer time-out. A rank that dies is
// mpirun's to name: it ends all others at once, often before they can say anything.
//
// Float32 that is to travel as 16 bits is rounded before it is sent, added up in float32, and the
// sum rounded once: other bits than the ring's, nearer to the sum. MPI does not compare what ranks
// call: where they differ, MPI_ERR_TRUNCATE at best.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "trainer/collectives/communicator.h"
#include "trainer/collectives/mpi/plugin.h"
#include "trainer/collectives/transport.h"
#include "trainer/job/health.h"

namespace trainer {

/// MPI between initialize and finalize. One at a time in a process, and one in its life.
class Mpi {
 public:
  /// Throws ClusterError outside mpirun and where there is no plug-in or no Open MPI: that
  /// `what_for` cannot be, and what to do `instead`.
  static std::unique_ptr<Mpi> load(const std::string& what_for, const std::string& instead);

  /// Over a table of one's own, for tests.
  explicit Mpi(const DtrainMpi& table);
  /// Finalizes after an orderly end. While an exception passes, or after give_up(), it leaves that
  /// undone, which would wait for lost ranks; mpirun then ends the job.
  ~Mpi();
  Mpi(const Mpi&) = delete;
  Mpi& operator=(const Mpi&) = delete;

  const DtrainMpi& table() const noexcept { return table_; }
  int rank() const noexcept { return rank_; }
  int world_size() const noexcept { return world_size_; }
  std::string library() const; ///< "Open MPI v4.1.4"
  void give_up() noexcept { gave_up_ = true; }

  /// Throws PeerError for an error code of the table's functions.
  void check(int error, const std::string& what) const;
  /// Rank 0's bytes on every rank, without a heartbeat beside it.
  void broadcast(std::span<std::byte> bytes);

 private:
  const DtrainMpi& table_;
  int rank_ = 0;
  int world_size_ = 1;
  int exceptions_;
  bool gave_up_ = false;
};

std::unique_ptr<Transport> make_mpi(std::unique_ptr<Mpi> mpi, Health& health);

/// The communicator of a job that mpirun started. Throws ClusterError as Mpi::load(), and
/// where MPI numbers the ranks otherwise than `cluster`.
std::unique_ptr<Communicator> connect_mpi(const Cluster& cluster, const CommOptions& options);

/// If mpirun started the job and no master address is set: rank 0 takes a free port and a random
/// token and broadcasts them through MPI into `cluster`. The port is held until the result is
/// destroyed. Collective.
Fd agree_where_to_meet(Mpi& mpi, Cluster& cluster);
/// The same, initializing MPI only for this. Throws ClusterError as Mpi::load().
Fd agree_where_to_meet(Cluster& cluster);

} // namespace trainer
