// Labels of images: whole numbers from 0 on, below the number of classes, which are kept in the
// smallest type that holds them all. A batch has them as i32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "trainer/data/bytes.h"
#include "trainer/device/buffer.h"

namespace trainer {

/// u8, i16 or i32.
DType label_type(std::size_t classes);

/// Throws DataError for label number `position` of a file where it is none of so many classes.
void check_label(const std::string& path, std::int32_t label, std::uint64_t position,
                 std::size_t classes);

/// An IDX file's, as label_type(classes): its own pages where it is plain and has that type. Throws
/// DataError as read_idx() and check_label() do.
Bytes read_labels(const std::string& path, std::size_t classes);

} // namespace trainer
