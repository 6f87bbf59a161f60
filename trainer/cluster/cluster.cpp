#include "trainer/comm/communicator.h"
