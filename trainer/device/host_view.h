// A range of a device's floats that the host can read and change: the range itself if the device is
// the host, else a copy, which write_back() copies back.
#pragma once

#include <span>

#include "trainer/device/device.h"

namespace trainer {

class HostView {
 public:
  /// Waits until the work on the device's stream is done. A range of paged memory is committed.
  HostView(Device& device, std::span<float> range);

  std::span<float> values() const { return device_.is_host() ? range_ : copy_.span(); }
  void write_back() const;

 private:
  Device& device_;
  std::span<float> range_;
  Buffer copy_;
};

} // namespace trainer
