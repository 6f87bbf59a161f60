// What members of an elastic job tell each other, of any bytes: it is refused, or read so that it
// is written and read again the same, with names that can be printed.
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>

#include "trainer/elastic/roster.h"
#include "trainer/errors.h"

namespace {

using namespace trainer;

void check_members(const Roster& roster) {
  for (const Member& member : roster.members) {
    for (const char c : member.name()) {
      if (c < ' ' || c > '~') {
        std::abort();
      }
    }
  }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  try {
    const MemberReport report = read_report(bytes);
    check_members(report.formed);
    for (const Roster& attempt : report.attempts) {
      check_members(attempt);
    }
    const auto written = to_bytes(report);
    if (to_bytes(read_report(written)) != written) {
      std::abort();
    }
  } catch (const LinkError&) {
    // Refused.
  }
  try {
    const Proposal proposal = read_proposal(bytes);
    check_members(proposal.roster);
    const auto written = to_bytes(proposal);
    if (to_bytes(read_proposal(written)) != written) {
      std::abort();
    }
  } catch (const LinkError&) {
    // Refused.
  }
  return 0;
}
