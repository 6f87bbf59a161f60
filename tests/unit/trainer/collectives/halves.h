// What every way of carrying collectives must give for the two halves of an all-reduce.
#pragma once

#include <string>

#include "trainer/collectives/communicator.h"

namespace trainer::test {

/// Collective. Whether reduce_scatter leaves this rank the bits of its chunk of an all_reduce, and
/// all_gather then those of all of it, for short and long buffers, ordinary and registered ones,
/// all types on their way; and records of bytes arrive. What is wrong; "" if nothing.
std::string wrong_halves(Communicator& communicator);

} // namespace trainer::test
