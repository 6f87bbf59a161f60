#include "backends/kubernetes/submission/code_parts.h"

#include "backends/kubernetes/objects/objects.h"
#include "backends/support/progress.h"
#include "submit/errors.h"
#include "submit/text/base64.h"

#include <fmt/format.h>

#include <algorithm>

namespace dtrain::kubernetes {
namespace {

using nlohmann::json;

constexpr const char* k_volume = "code-parts"; ///< In job.yaml.
constexpr const char* k_key = "part";
constexpr std::size_t k_digest_digits = 32; ///< Of the 64 in a name.
constexpr std::size_t k_at_once = 8;        ///< Requests, some megabytes altogether.

std::string name_of(const CodePart& part) {
  return "dtrain-code-" + part.digest.substr(0, k_digest_digits);
}

/// In any of them: a Job, a JobSet, or the source of a TrainJob.
void set_sources(json& value, const json& sources) {
  if (value.is_object() && value.contains("projected") && text_at(value, "name") == k_volume) {
    value["projected"]["sources"] = sources;
    return;
  }
  if (value.is_structured()) {
    for (json& each : value) {
      set_sources(each, sources);
    }
  }
}

class PartStore {
 public:
  PartStore(ApiClient& api, const JobSpec& job, json owner)
      : api_(api), namespace_name_(job.namespace_name), owner_(std::move(owner)),
        path_(collection_path("/api/v1", job.namespace_name, "configmaps")) {}

  HttpRequest create(const CodePart& part) {
    return api_.create(path_, {{"apiVersion", "v1"},
                               {"kind", "ConfigMap"},
                               {"metadata",
                                {{"name", name_of(part)},
                                 {"namespace", namespace_name_},
                                 {"labels", {{k_manager_label, k_manager}}},
                                 {"ownerReferences", json::array({owner_})}}},
                               {"immutable", true},
                               {"binaryData", {{k_key, base64_encode(part.gzip)}}}});
  }

  /// Returns true if the part had to be created. The job becomes an owner of an existing one; if
  /// that disappears meanwhile with its last owner, it is created again.
  bool settle(const CodePart& part, ApiResult made) {
    constexpr int k_tries = 5;
    for (int i = 0; i < k_tries && made.status == k_conflict; ++i) {
      const ApiResult there =
          api_.call(api_.extend(path_ + "/" + name_of(part),
                                {{"metadata", {{"ownerReferences", json::array({owner_})}}}}));
      if (there.ok() && !member(there.body, "metadata").contains("deletionTimestamp")) {
        require_same(part, there.body);
        return false;
      }
      if (!there.ok() && there.status != k_not_found) {
        api_.fail(there);
      }
      made = api_.call(create(part));
    }
    if (!made.ok()) {
      api_.fail(made);
    }
    return true;
  }

 private:
  void require_same(const CodePart& part, const json& object) const {
    if (member(object, "binaryData").value(k_key, "") != base64_encode(part.gzip)) {
      throw UsageError(
          fmt::format("ConfigMap {} exists in namespace {} and is not dtrain's: delete "
                      "it",
                      name_of(part), namespace_name_));
    }
  }

  ApiClient& api_;
  std::string namespace_name_;
  json owner_;
  std::string path_;
};

} // namespace

CodeArchive pack_code(const JobSpec& job, const SubmitSink& tell) {
  return pack_folder(job.sync_source, k_most_code_bytes, [&](const CopyProgress& now) {
    report(tell, {.step = SubmitStep::upload,
                  .bytes = now.bytes,
                  .bytes_total = now.bytes_total,
                  .text = fmt::format("{} of {} packed", bytes_text(now.bytes),
                                      bytes_text(now.bytes_total))});
  });
}

void mount_parts(std::vector<json>& objects, const CodeArchive& code) {
  json sources = json::array();
  for (std::size_t i = 0; i < code.parts.size(); ++i) {
    // By name, as the shell lists them, in the archive's order.
    const json item = {{"key", k_key}, {"path", fmt::format("{:05}.gz", i)}};
    sources.push_back(
        {{"configMap", {{"name", name_of(code.parts[i])}, {"items", json::array({item})}}}});
  }
  for (json& object : objects) {
    set_sources(object, sources);
  }
}

std::string store_parts(ApiClient& api, const JobSpec& job, const CodeArchive& code,
                        const json& owner, const SubmitSink& tell) {
  PartStore store(api, job, owner);
  std::int64_t stored = 0;
  std::int64_t sent = 0;
  for (std::size_t first = 0; first < code.parts.size(); first += k_at_once) {
    const std::size_t end = std::min(first + k_at_once, code.parts.size());
    std::vector<HttpRequest> requests;
    for (std::size_t i = first; i < end; ++i) {
      requests.push_back(store.create(code.parts[i]));
    }
    std::vector<ApiResult> results = api.call_all(std::move(requests));
    for (std::size_t i = first; i < end; ++i) {
      const auto size = static_cast<std::int64_t>(code.parts[i].gzip.size());
      sent += store.settle(code.parts[i], std::move(results[i - first])) ? size : 0;
      stored += size;
    }
    report(tell, {.step = SubmitStep::upload,
                  .bytes = stored,
                  .bytes_total = code.packed_bytes,
                  .text = fmt::format("{} of {} sent", bytes_text(stored),
                                      bytes_text(code.packed_bytes))});
  }
  return fmt::format("{}, of which new {}", code.text(), bytes_text(sent));
}

} // namespace dtrain::kubernetes
