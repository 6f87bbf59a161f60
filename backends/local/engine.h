// The local backend's table.
#pragma once

#include "backends/engine.h"

namespace dtrain::local {

const Engine& engine();

} // namespace dtrain::local
