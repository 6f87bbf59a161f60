#include "trainer/models/model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trainer/errors.h"
#include "trainer/models/bert.h"
#include "trainer/models/models.h"

namespace trainer {

void Model::need_all(const Hooks& hooks) const {
  for (std::size_t unit = units().size(); hooks.need && unit-- > 0;) {
    hooks.need(unit);
  }
}

void Model::rehearse(std::size_t /*rows*/, const Hooks& hooks,
                     const std::function<void(std::size_t unit)>& /*ahead*/) const {
  need_all(hooks);
  for (std::size_t unit = 0; unit < units().size(); ++unit) {
    const auto& [name, first, last] = units()[unit];
    for (std::size_t count = first; hooks.final && last - count > hooks.granularity;) {
      hooks.final(count += hooks.granularity);
    }
    if (hooks.final) {
      hooks.final(last);
    }
    if (hooks.done) {
      hooks.done(unit);
    }
  }
}

std::string shape_text(const ModelOptions& options) {
  if (options.is_of_text()) {
    const BertOptions& o = options.bert;
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
    return make_bert(options, device);
  }
  throw UsageError(
      fmt::format("--model={}: no such model; use mlp, cnn, bert or roberta", options.name));
}

} // namespace trainer
