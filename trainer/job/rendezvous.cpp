#include "trainer/job/rendezvous.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <thread>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include "submit/errors.h"
#include "trainer/job/dialling.h"
#include "trainer/job/frames.h"

namespace trainer {
namespace {

constexpr double k_dial_slice_seconds = 0.05;
constexpr double k_leader_bind_seconds = 5;
constexpr double k_abort_seconds = 1;
constexpr std::size_t k_longest_abort = 400;

enum StarFrame : std::uint32_t { k_records, k_abort };

struct Card {
  std::int64_t pid = 0;
  std::array<char, 64> host{};
};

void sleep_seconds(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

} // namespace

Fd listen_for_ranks(const Cluster& cluster, Deadline name_deadline, double timeout) {
  const bool one_host = cluster.local_world_size >= cluster.world_size;
  const bool says_loopback = cluster.master_addr == "localhost" ||
                             cluster.master_addr.starts_with("127.") ||
                             cluster.master_addr == "::1";
  std::string why;
  std::optional<Deadline> deadline; // Counted from when the name is known.
  do {
    for (Address address : resolve(cluster.master_addr, cluster.master_port, name_deadline)) {
      if (address.is_loopback() && !one_host && !says_loopback) {
        address = any_address(address.storage.ss_family, cluster.master_port);
      }
      try {
        return listen_at(address);
      } catch (const LinkError& error) {
        why = fmt::format("{}: {}", address.text(), error.what());
      }
      if (!address.is_loopback() && why.ends_with(error_text(EADDRNOTAVAIL))) {
        try {
          return listen_at(any_address(address.storage.ss_family, cluster.master_port));
        } catch (const LinkError& error) {
          why = fmt::format("port {}: {}", cluster.master_port, error.what());
        }
      }
    }
    deadline = deadline.value_or(after_seconds(timeout));
    sleep_seconds(k_dial_slice_seconds);
  } while (Clock::now() < *deadline);
  throw ClusterError(fmt::format("rank 0 cannot listen at {}: choose another MASTER_PORT", why));
}

Star::Star(const Cluster& cluster, const JobOptions& options)
    : rank_(cluster.rank), world_size_(cluster.world_size),
      timeout_(options.rendezvous_timeout + options.peer_timeout) {
  if (cluster.master_addr.empty() || cluster.master_port <= 0) {
    throw ClusterError(fmt::format(
        "{} ranks need MASTER_ADDR and MASTER_PORT, where rank 0 listens", cluster.world_size));
  }
  rank_ == 0 ? host(cluster, options) : join(cluster, options);
  Card mine;
  const Introduction self = introduce_self(LinkPurpose::rendezvous, rank_, world_size_);
  mine.pid = self.pid;
  std::copy(self.host.begin(), self.host.end(), mine.host.begin());
  const std::vector<Card> cards = exchange(mine);
  for (int rank = 0; rank < world_size_; ++rank) {
    const Card& card = cards[static_cast<std::size_t>(rank)];
    who_.push_back(
        {LinkPurpose::rendezvous, rank, world_size_, card.pid,
         dtrain::printable({card.host.data(), strnlen(card.host.data(), card.host.size())})});
  }
}

Star::Star(int rank, std::vector<Introduction> who, std::vector<Fd> links, double timeout)
    : rank_(rank), world_size_(static_cast<int>(who.size())), timeout_(timeout),
      links_(std::move(links)), who_(std::move(who)) {
  const Fd& link = rank_ == 0 ? links_.back() : links_.front();
  own_address_ = local_address(link);
  hub_address_ = rank_ == 0 ? own_address_ : remote_address(link);
}

void Star::host(const Cluster& cluster, const JobOptions& options) {
  Fd listener =
      listen_for_ranks(cluster, after_seconds(options.rendezvous_timeout), k_leader_bind_seconds);
  own_address_ = hub_address_ = local_address(listener);
  if (cluster.job_token.empty() && options.notice) {
    options.notice(no_token_warning());
  }
  std::vector<std::optional<Introduction>> arrived(static_cast<std::size_t>(world_size_));
  links_.resize(static_cast<std::size_t>(world_size_));
  std::string fatal;

  Acceptor acceptor(
      std::move(listener), cluster.job_token, LinkPurpose::rendezvous,
      [&](const Introduction& who) -> std::optional<std::string> {
        if (who.world_size != world_size_) {
          fatal = fmt::format("{} has WORLD_SIZE {}, rank 0 has {}; give all ranks the same",
                              who.name(), who.world_size, world_size_);
        } else if (who.rank <= 0 || who.rank >= world_size_) {
          fatal = fmt::format("{} joined a job of {} ranks that already has rank 0; number the "
                              "ranks 0 to {}, each once",
                              who.name(), world_size_, world_size_ - 1);
        } else if (auto& there = arrived[static_cast<std::size_t>(who.rank)];
                   there && !is_closed(links_[static_cast<std::size_t>(who.rank)])) {
          fatal =
              fmt::format("two processes are rank {}: {} pid {} and {} pid {}; number the ranks 0 "
                          "to {}, each once",
                          who.rank, there->host, there->pid, who.host, who.pid, world_size_ - 1);
        } else {
          return std::nullopt;
        }
        return fatal;
      });

  const Deadline deadline = after_seconds(options.rendezvous_timeout);
  const auto is_missing = [&](int rank) { return !arrived[static_cast<std::size_t>(rank)]; };
  const auto absent_ranks = [&] {
    std::vector<int> absent;
    for (int rank = 1; rank < world_size_; ++rank) {
      if (is_missing(rank)) {
        absent.push_back(rank);
      }
    }
    return absent;
  };
  WaitNotice notice(options);
  for (int missing = world_size_ - 1; missing > 0;) {
    notice.look([&] {
      const std::string refusals = acceptor.refusals();
      return fmt::format("ranks {} of {} at {}:{}{}{}", fmt::join(absent_ranks(), ", "),
                         world_size_, cluster.master_addr, cluster.master_port,
                         refusals.empty() ? "" : "; ", refusals);
    });
    auto arrival = acceptor.next(std::min(deadline, after_seconds(k_dial_slice_seconds)));
    if (!fatal.empty()) {
      abort_all(fatal);
      throw ClusterError(fatal);
    }
    if (arrival) {
      const auto rank = static_cast<std::size_t>(arrival->who.rank);
      missing -= arrived[rank] ? 0 : 1;
      arrived[rank] = arrival->who;
      links_[rank] = std::move(arrival->link);
    } else if (Clock::now() >= deadline) {
      const std::vector<int> absent = absent_ranks();
      const std::string refusals = acceptor.refusals();
      const std::string text =
          fmt::format("rank 0 waited {:g} s at {}:{}: rank{} {} of {} did not come{}{}",
                      options.rendezvous_timeout, cluster.master_addr, cluster.master_port,
                      absent.size() == 1 ? "" : "s", fmt::join(absent, ", "), world_size_,
                      refusals.empty() ? "" : "; ", refusals);
      abort_all(text);
      throw PeerError(text);
    }
  }
}

void Star::join(const Cluster& cluster, const JobOptions& options) {
  const Introduction self = introduce_self(LinkPurpose::rendezvous, rank_, world_size_);
  const std::string there =
      fmt::format("rank 0 at {}:{}", cluster.master_addr, cluster.master_port);
  WaitNotice notice(options);
  std::optional<std::string> why;
  try {
    why = dial_until(
        {cluster.master_addr, cluster.master_port}, cluster.job_token, self,
        after_seconds(options.rendezvous_timeout),
        [&](Fd link) {
          own_address_ = local_address(link);
          hub_address_ = remote_address(link);
          links_.push_back(std::move(link));
        },
        [&](const std::string& last) {
          notice.look([&] { return fmt::format("{} ({})", there, last); });
        });
  } catch (const RefusedError& refused) {
    throw ClusterError(fmt::format("rank {} was refused by {}: {}", rank_, there, refused.what()));
  }
  if (why) {
    throw PeerError(fmt::format(
        "rank {} waited {:g} s for {} ({}); check that it runs and can be reached from here", rank_,
        options.rendezvous_timeout, there, *why));
  }
}

void Star::abort_all(const std::string& text) noexcept {
  const auto body = std::as_bytes(std::span(text)).first(std::min(text.size(), k_longest_abort));
  const Deadline soon = after_seconds(k_abort_seconds);
  for (const Fd& link : links_) {
    if (link) {
      try {
        send_frame(link, k_abort, body, soon);
        shutdown(link.get(), SHUT_WR);
      } catch (const LinkError&) {
        continue; // That rank is lost as well.
      }
    }
  }
  // A connection closed with bytes unread is reset, and the message lost: read until they close.
  for (const Fd& link : links_) {
    try {
      for (std::byte unread{}; link;) {
        receive_all(link, {&unread, 1}, soon);
      }
    } catch (const LinkError&) {
      continue;
    }
  }
}

std::vector<std::byte> Star::exchange_bytes(std::span<const std::byte> mine) {
  const Deadline deadline = after_seconds(timeout_);
  const std::size_t size = mine.size();
  std::vector<std::byte> all(size * static_cast<std::size_t>(world_size_));
  if (rank_ == 0) {
    std::copy(mine.begin(), mine.end(), all.begin());
    for (std::size_t rank = 1; rank < links_.size(); ++rank) {
      try {
        receive_all(links_[rank], std::span(all).subspan(rank * size, size), deadline);
      } catch (const LinkError& error) {
        const std::string name = who_.empty() ? fmt::format("rank {}", rank) : who_[rank].name();
        const std::string text =
            fmt::format("{} failed while the ranks were connecting: {}", name, error.what());
        abort_all(text);
        throw PeerError(text);
      }
    }
    for (std::size_t rank = 1; rank < links_.size(); ++rank) {
      try {
        send_frame(links_[rank], k_records, all, deadline);
      } catch (const LinkError&) {
        continue; // The next exchange, or the heartbeat, names it.
      }
    }
    return all;
  }
  try {
    try {
      send_all(links_[0], mine, deadline);
    } catch (const LinkError&) {
      // Rank 0 may have said why before it closed.
    }
    const Frame frame = receive_frame(links_[0], std::max(all.size(), k_longest_abort), deadline);
    if (frame.what == k_abort) {
      throw PeerError(
          dtrain::printable({reinterpret_cast<const char*>(frame.body.data()), frame.body.size()}));
    }
    if (frame.what != k_records || frame.body.size() != all.size()) {
      throw LinkError("it sent an unexpected message");
    }
    return frame.body;
  } catch (const LinkError& error) {
    throw PeerError(fmt::format("rank 0 failed while the ranks were connecting: {}", error.what()));
  }
}

} // namespace trainer
