#include "trainer/job/health.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "submit/errors.h"
#include "trainer/errors.h"
#include "trainer/job/heartbeat.h"

namespace trainer {
namespace {

constexpr double k_goodbye_seconds = 2;
constexpr double k_verdict_seconds = 2;
constexpr std::uint32_t k_note_magic = 0x54444e31;

enum NoteType : std::uint32_t { k_heartbeat = 1, k_failure, k_left, k_left_acknowledged };

} // namespace

/// A message on a control connection, in both directions.
struct Health::Note {
  std::uint32_t magic = k_note_magic;
  std::uint32_t type = 0;
  std::int32_t rank = 0; ///< Whom it is about.
  std::uint32_t reserved = 0;
  std::int64_t step = 0;
  std::uint64_t begun = 0; ///< Collectives.
  std::uint64_t ended = 0;
  std::array<char, 480> text{}; ///< Text of a failure, or the last collective begun.

  void set_text(const std::string& what) {
    text = {};
    std::copy_n(what.begin(), std::min(what.size(), text.size() - 1), text.begin());
  }
  std::string text_string() const {
    return dtrain::printable({text.data(), strnlen(text.data(), text.size())});
  }
};

struct Health::Peer {
  int rank = 0;
  Fd link;
  Note incoming;
  std::size_t received = 0;
  Clock::time_point heard = Clock::now();
  TrackedPlace tracked;
  bool left = false;
  bool acknowledged = false;
};

Health::Health(int rank, std::vector<Introduction> who, std::vector<Fd> links,
               const JobOptions& options)
    : rank_(rank), who_(std::move(who)), peer_timeout_(options.peer_timeout),
      period_(heartbeat_seconds(options.peer_timeout)),
      collective_timeout_(options.collective_timeout), log_folder_(options.collective_log),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)), contact_(options.contact) {
  for (std::size_t i = 0; i < links.size(); ++i) {
    if (links[i]) {
      tune_link(links[i], peer_timeout_);
      peers_.emplace_back();
      peers_.back().rank = static_cast<int>(i);
      peers_.back().link = std::move(links[i]);
    }
  }
  thread_ = std::thread([this] { run(); });
}

Health::~Health() { leave(false); }

void Health::check() {
  if (has_left_.load(std::memory_order_acquire)) {
    throw PeerError(fmt::format("rank {} has left the job", rank_));
  }
  if (failed_.load(std::memory_order_acquire)) {
    const std::lock_guard lock(mutex_);
    throw PeerError(failure_);
  }
  if (begun_.load(std::memory_order_relaxed) > fewest_done_.load(std::memory_order_acquire)) {
    std::string text;
    {
      const std::lock_guard lock(mutex_);
      text = fmt::format("{}, while rank {} is at {}", left_, rank_, place().last);
    }
    fail(text);
  }
}

void Health::begin(std::uint64_t n, const Call& call) {
  log_.begin(n, call, step_.load(std::memory_order_relaxed));
  begun_.store(n, std::memory_order_relaxed);
}

void Health::fail(const std::string& text) {
  {
    const std::lock_guard lock(mutex_);
    if (failure_.empty()) {
      failure_ = text;
      to_report_ = text;
    }
  }
  failed_.store(true, std::memory_order_release);
  wake();
  const std::lock_guard lock(mutex_);
  throw PeerError(failure_);
}

void Health::fail_link(const std::string& text) {
  const Deadline deadline = after_seconds(k_verdict_seconds);
  while (Clock::now() < deadline) {
    check();
    std::this_thread::sleep_for(std::chrono::duration<double>(k_check_seconds / 10));
  }
  fail(text);
}

void Health::leave(bool gave_up) noexcept {
  {
    const std::lock_guard lock(mutex_);
    leaving_ = true;
    gave_up_ = gave_up && failure_.empty();
  }
  wake();
  if (thread_.joinable()) {
    thread_.join();
  }
  has_left_.store(true, std::memory_order_release);
  peers_.clear();
}

void Health::wake() noexcept {
  const std::uint64_t one = 1;
  (void)!write(wake_.get(), &one, sizeof one);
}

Health::Note Health::make_note(std::uint32_t type) const {
  Note note;
  note.type = type;
  note.rank = rank_;
  const Place at = place();
  note.step = at.step;
  note.begun = at.begun;
  note.ended = at.ended;
  note.set_text(at.last);
  return note;
}

void Health::send(Peer& peer, const Note& note) {
  if (!peer.link) {
    return;
  }
  const ssize_t sent = ::send(peer.link.get(), &note, sizeof note, MSG_NOSIGNAL);
  if (sent != static_cast<ssize_t>(sizeof note) && !(sent < 0 && errno == EAGAIN)) {
    // Its last messages, perhaps a goodbye, are still to be read.
    read(peer);
    if (peer.link) {
      lost(peer, sent < 0 ? error_text(errno) : "it does not read heartbeats");
    }
  }
}

void Health::run() {
  Clock::time_point next_heartbeat = Clock::now();
  Deadline leave_by = Clock::time_point::max();
  bool said_goodbye = false;
  for (;;) {
    std::vector<pollfd> polled = {{wake_.get(), POLLIN, 0}};
    for (const Peer& peer : peers_) {
      polled.push_back({peer.link.get(), POLLIN, 0}); // poll() skips a closed one, -1.
    }
    (void)poll(polled.data(), polled.size(), poll_timeout(std::min(next_heartbeat, leave_by)));
    std::uint64_t count = 0;
    (void)!::read(wake_.get(), &count, sizeof count);

    for (std::size_t i = 0; i < peers_.size(); ++i) {
      if (polled[i + 1].revents != 0 && peers_[i].link) {
        read(peers_[i]);
      }
    }
    note_contact();
    std::string report;
    std::string reason;
    bool leaving = false;
    bool gave_up = false;
    {
      const std::lock_guard lock(mutex_);
      report.swap(to_report_);
      reason = reason_;
      leaving = leaving_;
      gave_up = gave_up_;
    }
    if (leaving && gave_up && !said_goodbye) {
      report = fmt::format("{} gave up {}: {}", name(rank_), place().text(),
                           reason.empty() ? "see its output" : reason);
    }
    if (!report.empty()) {
      declare(report, rank_);
    }
    if (leaving && !said_goodbye) {
      said_goodbye = true;
      leave_by = after_seconds(rank_ == 0 ? peer_timeout_ : k_goodbye_seconds);
      for (Peer& peer : peers_) {
        send(peer, make_note(k_left));
      }
    }
    if (said_goodbye && (may_stop() || Clock::now() >= leave_by)) {
      return;
    }
    if (Clock::now() >= next_heartbeat) {
      next_heartbeat = after_seconds(period_);
      for (Peer& peer : peers_) {
        send_heartbeat(peer);
      }
      if (rank_ == 0 && !leaving && collective_timeout_ > 0) {
        look_for_stall();
      }
    }
  }
}

bool Health::may_stop() const {
  return failed_.load(std::memory_order_acquire) ||
         std::all_of(peers_.begin(), peers_.end(), [this](const Peer& peer) {
           return !peer.link || (rank_ == 0 ? peer.left : peer.acknowledged || peer.left);
         });
}

void Health::send_heartbeat(Peer& peer) {
  if (!peer.link || peer.left) {
    return;
  }
  const double silence = -seconds_until(peer.heard);
  if (silence > peer_timeout_) {
    lost(peer, fmt::format("nothing heard from it for {:.1f} s", silence));
    return;
  }
  send(peer, make_note(k_heartbeat));
}

void Health::read(Peer& peer) {
  while (peer.link) {
    const auto rest = writable_bytes_of(peer.incoming).subspan(peer.received);
    const ssize_t received = recv(peer.link.get(), rest.data(), rest.size(), 0);
    if (received < 0 && (errno == EAGAIN || errno == EINTR)) {
      return;
    }
    if (received <= 0) {
      peer.heard = Clock::now();
      if (received == 0 && contact_ && !peer.left && !peer.acknowledged) {
        contact_->note_closed(peer.rank);
      }
      lost(peer, received == 0 ? "connection closed" : error_text(errno));
      return;
    }
    peer.heard = Clock::now();
    peer.received += static_cast<std::size_t>(received);
    if (peer.received == sizeof(Note)) {
      peer.received = 0;
      const Note note = peer.incoming;
      if (note.magic != k_note_magic) {
        lost(peer, "it sent data that is not a heartbeat");
        return;
      }
      handle(peer, note);
    }
  }
}

void Health::handle(Peer& peer, const Note& note) {
  switch (note.type) {
  case k_heartbeat:
    peer.tracked.update({note.begun, note.ended, note.step, note.text_string()});
    break;
  case k_failure:
    declare(note.text_string(), peer.rank);
    break;
  case k_left:
    if (rank_ == 0) {
      peer.left = true;
      send(peer, make_note(k_left_acknowledged));
      Note relayed = note;
      relayed.rank = peer.rank;
      for (Peer& other : peers_) {
        if (&other != &peer && !other.left) {
          send(other, relayed);
        }
      }
    } else {
      peer.left = peer.left || note.rank == 0;
    }
    note_left(rank_ == 0 ? peer.rank : note.rank, note.step, note.begun);
    break;
  case k_left_acknowledged:
    peer.acknowledged = true;
    break;
  default:
    break;
  }
}

void Health::note_left(int rank, std::int64_t step, std::uint64_t done) {
  if (rank < 0 || rank >= static_cast<int>(who_.size())) {
    return;
  }
  const std::lock_guard lock(mutex_);
  if (done < fewest_done_.load(std::memory_order_relaxed)) {
    left_ = fmt::format("{} left {}, after {} collectives", name(rank), step_text(step), done);
    fewest_done_.store(done, std::memory_order_release);
  }
}

void Health::lost(Peer& peer, const std::string& why) {
  peer.link.reset();
  if (peer.left || peer.acknowledged) {
    return;
  }
  declare(fmt::format("{} died or was cut off: {}; last heard of {}; rank {} is {}",
                      name(peer.rank), why, peer.tracked.place.text(), rank_, place().text()),
          peer.rank);
}

/// After this process was stopped, messages waiting to be read are old.
void Health::note_contact() {
  const auto now = Clock::now();
  was_stopped_ =
      was_stopped_ || std::chrono::duration<double>(now - turned_).count() > peer_timeout_ / 2;
  turned_ = now;
  if (was_stopped_ || !contact_ || peers_.empty()) {
    return;
  }
  const auto longest_silent = std::min_element(
      peers_.begin(), peers_.end(), [](const Peer& a, const Peer& b) { return a.heard < b.heard; });
  contact_->heard.store(longest_silent->heard, std::memory_order_relaxed);
}

/// On rank 0, which hears from all.
void Health::look_for_stall() {
  own_.update(place());
  std::vector<RankPlace> ranks = {{rank_, own_.place, own_.still()}};
  for (const Peer& peer : peers_) {
    if (!peer.link || peer.left) {
      return; // That is reported as a lost rank.
    }
    ranks.push_back({peer.rank, peer.tracked.place, peer.tracked.still()});
  }
  if (const auto text =
          find_stall(ranks, collective_timeout_, [this](int rank) { return name(rank); })) {
    declare(*text, rank_);
  }
}

/// Runs in this thread: the other may be stuck.
void Health::write_log() const {
  if (log_folder_.empty()) {
    return;
  }
  try {
    log_.write(fmt::format("{}/rank-{}.csv", log_folder_, rank_));
  } catch (const Error& error) {
    fmt::print(stderr, "dtrain-trainer: {}\n", error.what());
  }
}

void Health::declare(const std::string& text, int about) {
  {
    const std::lock_guard lock(mutex_);
    if (failure_.empty()) {
      failure_ = text;
    } else if (failure_ != text) {
      return; // The first failure is the cause; the others follow from it.
    }
  }
  failed_.store(true, std::memory_order_release);
  Note note = make_note(k_failure);
  note.set_text(text);
  for (Peer& peer : peers_) {
    if (peer.rank != about || about == rank_) {
      send(peer, note);
    }
  }
  write_log();
}

} // namespace trainer
