#include "trainer/models/model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trainer/errors.h"
#include "trainer/models/models.h"

namespace trainer {

std::string widths_text(const ModelOptions& options) {
  return fmt::format("{}", fmt::join(options.hidden, ","));
}

std::unique_ptr<Model> make_model(const ModelOptions& options, Device& device) {
  if (options.name == "mlp") {
    return make_mlp(options, device);
  }
  if (options.name == "cnn") {
    return make_cnn(options, device);
  }
  throw UsageError(fmt::format("--model={}: no such model; use mlp or cnn", options.name));
}

} // namespace trainer
