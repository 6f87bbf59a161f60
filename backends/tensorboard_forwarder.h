// What a backend can besides, whose TensorBoards run in a network that this machine does not see.
#pragma once

#include "backends/job_status.h"

#include <functional>
#include <string>

namespace dtrain {

class TensorboardForwarder {
 public:
  virtual ~TensorboardForwarder() = default;

  /// Opens `port` (0: any that is free) of 127.0.0.1 to the job's TensorBoard, tells its URL there,
  /// and serves it until SIGINT or SIGTERM, whose number it gives.
  virtual int forward_tensorboard(const JobRef& job, int port,
                                  const std::function<void(const std::string& url)>& opened) = 0;
};

} // namespace dtrain
