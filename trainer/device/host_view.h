// What a range of a device's floats holds, for the host to look into and to change: the range
// itself where it is the host's, else a copy, which write_back() takes there.
#pragma once

#include <span>

#include "trainer/device/device.h"

namespace trainer {

class HostView {
 public:
  /// Waits for what the device's stream holds.
  HostView(Device& device, std::span<float> range);

  std::span<float> values() const { return device_.is_host() ? range_ : copy_.span(); }
  void write_back() const;

 private:
  Device& device_;
  std::span<float> range_;
  Buffer copy_;
};

} // namespace trainer
