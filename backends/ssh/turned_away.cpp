#include "backends/ssh/turned_away.h"

#include <random>

namespace dtrain::ssh {

bool is_turned_away(std::string_view said) {
  return said.find("exchange_identification: ") != std::string_view::npos;
}

std::chrono::milliseconds pause_before(int tries) {
  constexpr int k_pause_ms = 250;
  static std::random_device device;
  std::uniform_int_distribution<int> part(k_pause_ms, 2 * k_pause_ms);
  return std::chrono::milliseconds(tries * part(device));
}

} // namespace dtrain::ssh
