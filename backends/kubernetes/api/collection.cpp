#include "backends/kubernetes/api/collection.h"

#include "submit/errors.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace dtrain::kubernetes {
namespace {

using nlohmann::json;

constexpr const char* k_watch_seconds = "300";
constexpr int k_most_refusals = 3;
constexpr std::chrono::milliseconds k_page_idle{60'000};

void trim(json& object) {
  if (object.contains("metadata")) {
    object["metadata"].erase("managedFields");
  }
}

} // namespace

Collection::Collection(ApiClient& api, std::string path, Query query)
    : api_(api), path_(std::move(path)), query_(std::move(query)) {}

Collection::~Collection() {
  if (open_) {
    api_.http().close(stream_);
  }
}

void Collection::start() { start(api_.list(path_, query_)); }

void Collection::start(ApiClient::Listing listing) {
  fill(std::move(listing));
  watch();
}

void Collection::fill(ApiClient::Listing listing) {
  objects_.clear();
  for (json& object : listing.items) {
    trim(object);
    std::string uid = object["metadata"].value("uid", "");
    objects_[uid] = std::make_shared<json>(std::move(object));
  }
  resource_version_ = listing.resource_version;
  must_list_ = false;
  changed_ = true;
}

void Collection::watch() {
  Query query = query_;
  query.emplace_back("watch", "true");
  query.emplace_back("allowWatchBookmarks", "true");
  query.emplace_back("timeoutSeconds", k_watch_seconds);
  query.emplace_back("resourceVersion", resource_version_);
  partial_line_.clear();
  open_ = true;
  stream_ = api_.http().open(api_.request("GET", path_, query),
                             {[this](std::string_view bytes) { return on_bytes(bytes); },
                              [this](const HttpResponse& response) { on_end(response); }});
}

bool Collection::on_bytes(std::string_view bytes) {
  partial_line_ += bytes;
  std::size_t start = 0;
  for (std::size_t end = 0; (end = partial_line_.find('\n', start)) != std::string::npos;
       start = end + 1) {
    on_event(json::parse(partial_line_.begin() + static_cast<std::ptrdiff_t>(start),
                         partial_line_.begin() + static_cast<std::ptrdiff_t>(end), nullptr, false));
  }
  partial_line_.erase(0, start);
  return true;
}

void Collection::on_event(const json& event) {
  if (!event.is_object() || !event.contains("object")) {
    return;
  }
  std::string type = event.value("type", "");
  json object = event["object"];
  if (type == "ERROR") {
    must_list_ = true; // 410 in the stream, or anything else that the stream cannot go on from.
    return;
  }
  const json& metadata = object["metadata"];
  resource_version_ = metadata.value("resourceVersion", resource_version_);
  pause_ = std::chrono::milliseconds{0};
  refusals_ = 0;
  if (type == "BOOKMARK") {
    return;
  }
  std::string uid = metadata.value("uid", "");
  changed_ = true;
  if (type == "DELETED") {
    objects_.erase(uid);
  } else {
    trim(object);
    objects_[uid] = std::make_shared<json>(std::move(object));
  }
}

void Collection::on_end(const HttpResponse& response) {
  open_ = false;
  retry_at_ = Clock::now();
  if (response.status == k_gone) {
    must_list_ = true;
  } else if (response.status == k_unauthorized || response.status == k_forbidden) {
    ++refusals_;
    refusal_ = ApiResult{response.status, json::parse(response.body, nullptr, false)}.message();
    api_.renew_credentials();
    pause();
  } else if (response.status != k_ok || !response.error.empty()) {
    pause();
  }
}

void Collection::pause() {
  retry_at_ = Clock::now() + pause_;
  pause_ = std::clamp(pause_ * 2, k_first_pause, k_longest_pause);
}

void Collection::tend() {
  if (refusals_ >= k_most_refusals) {
    throw EngineError(fmt::format("{}: {}", api_.access().server.url, refusal_));
  }
  if (open_ || Clock::now() < retry_at_) {
    return;
  }
  if (must_list_) {
    try {
      fill(api_.list(path_, query_));
    } catch (const Error&) {
      pause();
      return;
    }
  }
  watch();
}

std::chrono::milliseconds Collection::next_tend() const {
  if (open_) {
    return k_page_idle;
  }
  auto left = std::chrono::ceil<std::chrono::milliseconds>(retry_at_ - Clock::now());
  return std::max(left, std::chrono::milliseconds{0});
}

} // namespace dtrain::kubernetes
