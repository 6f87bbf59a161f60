#include "trainer/device/host_view.h"

namespace trainer {

HostView::HostView(Device& device, std::span<float> range)
    : device_(device), range_(range), copy_(device.is_host() ? 0 : range.size()) {
  device.commit(range);
  if (!device.is_host()) {
    device.stream().copy(range.data(), copy_.data(), range.size_bytes());
  }
}

void HostView::write_back() const {
  if (!device_.is_host()) {
    device_.stream().copy(copy_.data(), range_.data(), range_.size_bytes());
  }
}

} // namespace trainer
