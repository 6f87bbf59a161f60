// Denormals: floats closer to zero than 2^-126, which hardware takes up to a hundred times longer
// to add and multiply. Training makes them: a moment of Adam whose gradient stays zero is
// multiplied by 0.9 a step, and rounding keeps it at the smallest denormals.
#pragma once

namespace trainer {

/// From now on this thread, and every thread that it starts (POSIX threads inherit the
/// floating-point environment), reads denormals as zero and writes zero instead of them.
void flush_denormals() noexcept;

/// Whether this thread flushes denormals.
bool flushes_denormals() noexcept;

} // namespace trainer
