// TCP ports that nobody else can take before the program that they are meant for does.
//
// The socket is bound with SO_REUSEADDR and never listens. While it is open the kernel gives its
// port to nobody who asks for any free one, yet lets a program bind and listen on it that sets
// SO_REUSEADDR too, as PyTorch's TCPStore, gRPC, Go, Java and Python servers do. (One that does not
// set it is refused, EADDRINUSE, as it would be after any restart.)
#pragma once

#include "backends/support/os/fd.h"

namespace dtrain {

class ReservedPort {
 public:
  /// Takes a free port of the loopback interface. Throws EngineError if there is none.
  ReservedPort();
  int number() const { return number_; }

 private:
  Fd socket_;
  int number_ = 0;
};

} // namespace dtrain
