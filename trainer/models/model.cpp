#include "trainer/models/model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trainer/errors.h"
#include "trainer/models/models.h"
#include "trainer/models/transformer.h"

namespace trainer {

std::vector<UnitMemory> Model::need_all(ParameterOwner& owner) const {
  std::vector<UnitMemory> memory(units().size());
  for (std::size_t unit = memory.size(); unit-- > 0;) {
    memory[unit] = owner.need(unit);
  }
  return memory;
}

void Model::finish(ParameterOwner& owner, std::size_t unit) const {
  owner.final(units()[unit].last);
  owner.done(unit);
  if (unit + 1 < units().size()) {
    owner.write(unit + 1);
  }
}

std::string shape_text(const ModelOptions& options) {
  if (options.is_of_text()) {
    const TransformerOptions& o = options.transformer;
    return fmt::format("{}x{} heads={} ff={} max-length={} dropout={:g} epsilon={:g}", o.layers,
                       o.hidden, o.heads, o.inner, o.max_length, o.dropout, o.norm_epsilon);
  }
  return fmt::format("{}", fmt::join(options.hidden, ","));
}

std::unique_ptr<Model> make_model(const ModelOptions& options, Device& device) {
  if (options.name == "mlp") {
    return make_mlp(options, device);
  }
  if (options.name == "cnn") {
    return make_cnn(options, device);
  }
  if (options.is_of_text()) {
    return make_language_model(options, device);
  }
  throw UsageError(
      fmt::format("--model={}: no such model; use mlp, cnn, bert, roberta or gpt2", options.name));
}

} // namespace trainer
