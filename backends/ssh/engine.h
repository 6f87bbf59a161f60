// What the ssh backend says of itself.
#pragma once

#include "backends/engine.h"

namespace dtrain::ssh {

const Engine& engine();

} // namespace dtrain::ssh
