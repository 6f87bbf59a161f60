#include "backends/ssh/agent_frames.h"

#include "submit/errors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <utility>

namespace dtrain::ssh {

namespace {

constexpr int k_shell_base = 128; ///< Exit codes as in shells …
constexpr int k_last_signal = 31; ///< … of those that a program is ended by.

struct FrameHeader {
  AgentFrame::Kind kind = AgentFrame::Kind::heartbeat;
  RankId key = 0;
  std::size_t bytes = 0;
};

template <class Number>
bool read_number(std::string_view text, Number& number) {
  const auto* end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && stopped == end;
}

/// "out 3 4096"
std::optional<FrameHeader> read_frame_header(std::string_view line) {
  constexpr std::array<std::pair<std::string_view, AgentFrame::Kind>, 7> k_kinds{
      {{"heartbeat", AgentFrame::Kind::heartbeat},
       {"out", AgentFrame::Kind::out},
       {"err", AgentFrame::Kind::err},
       {"ended", AgentFrame::Kind::ended},
       {"stuck", AgentFrame::Kind::stuck},
       {"gpus", AgentFrame::Kind::gpus},
       {"lacks", AgentFrame::Kind::lacks}}};
  const auto first = line.find(' ');
  const auto last = line.rfind(' ');
  if (first == std::string_view::npos || first == last) {
    return std::nullopt;
  }
  const auto found = std::find_if(k_kinds.begin(), k_kinds.end(), [&](const auto& kind) {
    return kind.first == line.substr(0, first);
  });
  FrameHeader header;
  if (found == k_kinds.end() ||
      !read_number(line.substr(first + 1, last - first - 1), header.key) ||
      !read_number(line.substr(last + 1), header.bytes) ||
      header.bytes > FrameReader::k_longest_text) {
    return std::nullopt;
  }
  header.kind = found->second;
  return header;
}

[[noreturn]] void refuse_words(std::string_view what) {
  throw EngineError(fmt::format(
      "its agent sent a garbled message, at '{}': another program writes to the same connection",
      printable(what.substr(0, FrameReader::k_longest_header))));
}

} // namespace

/// Keeps no more of the earlier output than may be the beginning of a greeting.
bool FrameReader::find_greeting() {
  const auto at = unread_.find(greeting_);
  if (at != std::string::npos) {
    unread_.erase(0, at + greeting_.size());
    return true;
  }
  unread_.erase(0, unread_.size() - std::min(unread_.size(), greeting_.size()));
  return false;
}

void FrameReader::read(std::string_view bytes, const Take& take) {
  unread_ += bytes;
  greeted_ = greeted_ || find_greeting();
  if (!greeted_) {
    return;
  }
  std::size_t at = 0;
  while (at < unread_.size()) {
    const auto rest = std::string_view(unread_).substr(at);
    const auto end = rest.substr(0, k_longest_header).find('\n');
    if (end == std::string_view::npos) {
      if (rest.size() >= k_longest_header) {
        refuse_words(rest);
      }
      break;
    }
    const auto header = read_frame_header(rest.substr(0, end));
    if (!header) {
      refuse_words(rest.substr(0, end));
    }
    if (rest.size() - end - 1 < header->bytes) {
      break;
    }
    take({header->kind, header->key, rest.substr(end + 1, header->bytes)});
    at += end + 1 + header->bytes;
  }
  unread_.erase(0, at);
}

RankEnding ending_of(const AgentFrame& frame) {
  int code = 0;
  if ((frame.kind != AgentFrame::Kind::ended && frame.kind != AgentFrame::Kind::stuck) ||
      !read_number(frame.text.substr(0, frame.text.find(' ')), code)) {
    refuse_words(frame.text);
  }
  RankEnding ending{.id = frame.key};
  if (code > k_shell_base && code <= k_shell_base + k_last_signal) {
    ending.signal = code - k_shell_base;
  } else {
    ending.exit_code = code;
  }
  return ending;
}

std::string stuck_text(const AgentFrame& frame, const std::string& host) {
  const auto pids = frame.text.substr(std::min(frame.text.find(' '), frame.text.size()));
  return fmt::format("dtrain: processes on {} survived SIGKILL:{} (see ps -o pid,stat,wchan)\n",
                     host, printable(std::string(pids)));
}

} // namespace dtrain::ssh
