// Lets collectives go on while the caller computes: a thread carries out what was started.
//
// The first to get to a collective carries it out. A caller that waits for a collective that the
// thread has not yet begun carries it out itself, and one with nothing under way never meets the
// thread: a blocking collective costs what it costs without it.
#pragma once

#include <memory>

#include "trainer/collectives/transport.h"

namespace trainer {

/// Before it is destroyed with collectives under way, Health::leave() has to end their waits.
std::unique_ptr<Transport> make_background(std::unique_ptr<Carrier> carrier);

} // namespace trainer
