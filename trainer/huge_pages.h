// Pages of 2 MiB for memory that is read in any order, or whole in every step: with those of 4 KiB
// a machine's walk to the next page takes as long as the read.
#pragma once

#include <cstddef>
#include <span>

namespace trainer {

/// Asks the kernel for them, now, wherever the memory has 2 MiB of its own. Not more than a wish:
/// nothing changes but speed. The memory may be in use.
void use_huge_pages(std::span<const std::byte> memory);

} // namespace trainer
