// What the kubernetes backend says of itself.
#pragma once

#include "backends/engine.h"

namespace dtrain::kubernetes {

const Engine& engine();

} // namespace dtrain::kubernetes
