#include "trainer/version.h"

namespace trainer {

std::string trainer_version() { return DTRAIN_VERSION; }

} // namespace trainer
