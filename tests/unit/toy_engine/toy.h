// An engine as small as can be: a folder, and a line in the registry.
#pragma once

#include "backends/engine.h"

namespace dtrain::toy {

const Engine& engine();

} // namespace dtrain::toy
