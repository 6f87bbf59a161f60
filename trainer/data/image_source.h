// Images with labels, as the bytes they come in.
#pragma once

#include <memory>

#include "trainer/data/bytes.h"
#include "trainer/data/source.h"
#include "trainer/data/stream.h"

namespace trainer {

struct ImageSet {
  Bytes images; ///< (count, height, width)
  Bytes labels; ///< (count)
  std::size_t height = 0;
  std::size_t width = 0;
};

std::shared_ptr<SampleSource> image_source(ImageSet set);
std::shared_ptr<SampleSource> image_source(std::unique_ptr<SampleStream> stream);

} // namespace trainer
