// What the local backend says of itself.
#pragma once

#include "backends/engine.h"

namespace dtrain::local {

const Engine& engine();

} // namespace dtrain::local
