// The ssh backend's table.
#pragma once

#include "backends/engine.h"

namespace dtrain::ssh {

const Engine& engine();

} // namespace dtrain::ssh
