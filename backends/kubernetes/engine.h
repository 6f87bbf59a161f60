// The kubernetes backend's table.
#pragma once

#include "backends/engine.h"

namespace dtrain::kubernetes {

const Engine& engine();

} // namespace dtrain::kubernetes
