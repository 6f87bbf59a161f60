// What a rank of a ring sends to its successor and receives from its predecessor, step by step,
// both at once: the parts of every collective over TCP.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "trainer/collectives/memory.h"
#include "trainer/collectives/tcp/ring.h"
#include "trainer/collectives/transport.h"
#include "trainer/job/health.h"

namespace trainer {

/// One step of a collective.
struct Step {
  static constexpr std::size_t k_at_once = SIZE_MAX;

  /// What is done with bytes that have arrived:
  enum class Action {
    store,      ///< Stored as they are.
    add,        ///< Added to what is there, as values of the range's type.
    add_wire,   ///< 16-bit values, to which `floats` are added.
    widen_wire, ///< 16-bit values, stored, and also as floats in `floats`.
  };

  std::span<const std::byte> send;
  std::span<std::byte> receive;
  Action action = Action::store;
  std::size_t forwards = k_at_once; ///< Sends what that step received, as far as it has come.
  float* floats = nullptr;          ///< The values of `receive` as floats.
};

/// Each collective begins with this, in both directions.
struct CollectiveHeader {
  std::uint32_t magic = 0;
  Collective::Kind kind = Collective::Kind::barrier;
  std::uint64_t number = 0;
  std::uint64_t bytes = 0;
  std::int32_t root = 0;
  WireType wire = WireType::fp32;
  std::uint32_t dtype = 0;
  std::uint32_t pieces = 1;
  std::array<char, 48> name{};

  CollectiveHeader() = default;
  CollectiveHeader(const Collective& collective, std::uint64_t number);
  bool operator==(const CollectiveHeader&) const = default;
  DType type() const { return static_cast<DType>(dtype); }
  std::string text() const;
};

class StepRunner {
 public:
  StepRunner(RingLinks links, Health& health);

  const RingLinks& links() const noexcept { return links_; }

  /// Sends and receives all steps, headers first. Throws PeerError, also where the previous rank's
  /// header is another one.
  void run(const CollectiveHeader& header, std::span<const Step> steps);

 private:
  struct Progress;
  bool send_some(std::span<const Step> steps, Progress& at);
  bool receive_some(std::span<const Step> steps, Progress& at);
  std::size_t receive_into_segment(const Step& step, Progress& at);
  std::size_t receive(std::span<std::byte> into);
  void compare(const CollectiveHeader& theirs);
  void await(bool may_send, bool may_receive);
  int rank_at(int distance) const; ///< The rank so many places after this one.

  RingLinks links_;
  Health& health_;
  CollectiveHeader header_; ///< Of the current collective.
  PrivateMemory segment_memory_;
  std::span<float> segment_;
};

} // namespace trainer
