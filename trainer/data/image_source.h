// Images with labels, as the bytes they come in.
#pragma once

#include <memory>

#include "trainer/data/bytes.h"
#include "trainer/data/source.h"
#include "trainer/data/stream.h"
#include "trainer/device/buffer.h"

namespace trainer {

struct ImageSet {
  Bytes images; ///< (count, height, width)
  Bytes labels; ///< (count), of label_type
  std::size_t height = 0;
  std::size_t width = 0;
  DType label_type = DType::u8; ///< As label_type() has it (data/labels.h).

  std::size_t count() const { return labels.size() / size_of(label_type); }
};

std::shared_ptr<SampleSource> image_source(ImageSet set);
std::shared_ptr<SampleSource> image_source(std::unique_ptr<SampleStream> stream);

} // namespace trainer
