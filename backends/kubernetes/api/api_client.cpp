#include "backends/kubernetes/api/api_client.h"

#include "submit/errors.h"

#include <fmt/format.h>

#include <numeric>

namespace dtrain::kubernetes {
namespace {

using nlohmann::json;

constexpr const char* k_page_size = "500";

} // namespace

std::string ApiResult::reason() const { return body.is_object() ? body.value("reason", "") : ""; }

std::string ApiResult::message() const {
  std::string text = body.is_object() ? body.value("message", "") : "";
  return printable(text.empty() ? fmt::format("HTTP status {}", status) : text);
}

std::string query_text(const Query& query) {
  std::string text;
  for (const auto& [key, value] : query) {
    text += fmt::format("{}{}={}", text.empty() ? '?' : '&', key, escape_url(value));
  }
  return text;
}

ApiClient::ApiClient(ClusterAccess access)
    : access_(std::move(access)), http_(access_.server), credentials_(access_) {}

std::string ApiClient::where() const {
  return fmt::format("{} ({})", access_.server.url, access_.origin);
}

HttpRequest ApiClient::request(std::string method, std::string path, const Query& query) {
  HttpRequest request;
  request.method = std::move(method);
  request.path = std::move(path) + query_text(query);
  authorize(request);
  return request;
}

HttpRequest ApiClient::request(std::string method, std::string path, const Query& query,
                               const json& body, std::string content_type) {
  HttpRequest result = request(std::move(method), std::move(path), query);
  result.body = body.dump();
  result.content_type = std::move(content_type);
  return result;
}

HttpRequest ApiClient::create(std::string path, const json& object, bool dry_run) {
  Query query = {{"fieldManager", k_field_manager}, {"fieldValidation", "Strict"}};
  if (dry_run) {
    query.emplace_back("dryRun", "All");
  }
  return request("POST", std::move(path), query, object);
}

HttpRequest ApiClient::apply(std::string path, const json& object, const std::string& manager) {
  Query query = {{"fieldManager", manager}, {"force", "true"}, {"fieldValidation", "Strict"}};
  // JSON is YAML.
  return request("PATCH", std::move(path), query, object, "application/apply-patch+yaml");
}

HttpRequest ApiClient::merge(std::string path, const json& change) {
  Query query = {{"fieldManager", k_field_manager}, {"fieldValidation", "Strict"}};
  return request("PATCH", std::move(path), query, change, "application/merge-patch+json");
}

HttpRequest ApiClient::extend(std::string path, const json& change) {
  Query query = {{"fieldManager", k_field_manager}, {"fieldValidation", "Strict"}};
  return request("PATCH", std::move(path), query, change, "application/strategic-merge-patch+json");
}

HttpRequest ApiClient::remove(std::string path, const std::string& uid) {
  json options = {
      {"apiVersion", "v1"}, {"kind", "DeleteOptions"}, {"propagationPolicy", "Background"}};
  if (!uid.empty()) {
    options["preconditions"] = {{"uid", uid}};
  }
  return request("DELETE", std::move(path), {}, options);
}

void ApiClient::authorize(HttpRequest& request) {
  request.bearer_token = credentials_.token(http_);
  request.impersonate_user = access_.impersonate_user;
}

ApiResult ApiClient::read(const HttpResponse& response) const {
  if (response.status == 0) {
    throw EngineError(
        fmt::format("cannot reach the cluster at {}: {}", where(), printable(response.error)));
  }
  ApiResult result{response.status, json::parse(response.body, nullptr, false), response.date};
  if (result.body.is_discarded()) {
    bool is_error = !result.ok();
    if (!is_error) {
      throw EngineError(fmt::format(
          "{} did not answer in JSON; check that it is a Kubernetes API server", where()));
    }
    constexpr std::size_t k_shown = 200;
    result.body = {{"message", printable(response.body.substr(0, k_shown))}};
  }
  return result;
}

std::vector<ApiResult> ApiClient::call_all(std::vector<HttpRequest> requests) {
  std::vector<HttpResponse> responses = http_.call_all(requests);
  std::vector<ApiResult> results;
  bool renewed = false;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (responses[i].status == k_unauthorized && (renewed || credentials_.expire())) {
      renewed = true;
      authorize(requests[i]);
      responses[i] = http_.call(requests[i]);
    }
    results.push_back(read(responses[i]));
    if (results.back().status == k_unauthorized) {
      throw_unauthorized(results.back());
    }
  }
  return results;
}

ApiResult ApiClient::call(HttpRequest request) {
  std::vector<HttpRequest> requests;
  requests.push_back(std::move(request));
  return std::move(call_all(std::move(requests)).front());
}

json ApiClient::must(HttpRequest request) {
  ApiResult result = call(std::move(request));
  if (!result.ok()) {
    fail(result);
  }
  return std::move(result.body);
}

std::unique_ptr<WebSocket> ApiClient::open_socket(const std::string& path, const Query& query,
                                                  const std::vector<std::string>& protocols) {
  HttpRequest upgrade = request("GET", path, query);
  auto socket = std::make_unique<WebSocket>(http_.server());
  HttpResponse answer = socket->connect(upgrade, protocols);
  if (answer.status == k_unauthorized && credentials_.expire()) {
    authorize(upgrade);
    socket = std::make_unique<WebSocket>(http_.server());
    answer = socket->connect(upgrade, protocols);
  }
  if (answer.status == k_switching_protocols) {
    return socket;
  }
  const ApiResult result = read(answer);
  if (result.status == k_unauthorized) {
    throw_unauthorized(result);
  }
  fail(result);
}

void ApiClient::throw_unauthorized(const ApiResult& result) const {
  throw EngineError(fmt::format("{} does not accept our credentials: {}; log in again", where(),
                                result.message()));
}

void ApiClient::fail(const ApiResult& result) const {
  std::string reason = result.reason();
  std::string text = fmt::format("{}{}", result.message(),
                                 reason.empty() ? "" : fmt::format(" ({})", printable(reason)));
  if (result.status == k_not_found) {
    throw NotFound(text);
  }
  text = fmt::format("{}: {}", access_.server.url, text);
  if (result.status == k_forbidden) {
    throw Forbidden(text);
  }
  throw EngineError(text);
}

ApiClient::Listing ApiClient::list(const std::string& path, Query query) {
  return std::move(list_all({{path, std::move(query)}}).front());
}

std::vector<ApiClient::Listing>
ApiClient::list_all(const std::vector<std::pair<std::string, Query>>& collections) {
  std::vector<Listing> listings(collections.size());
  std::vector<std::string> next(collections.size()); // The page to ask for; empty: the first.
  std::vector<std::size_t> open(collections.size());
  std::iota(open.begin(), open.end(), std::size_t{0});
  while (!open.empty()) {
    std::vector<HttpRequest> requests;
    for (const std::size_t i : open) {
      Query page = collections[i].second;
      page.emplace_back("limit", k_page_size);
      if (!next[i].empty()) {
        page.emplace_back("continue", next[i]);
      }
      requests.push_back(request("GET", collections[i].first, page));
    }
    std::vector<ApiResult> results = call_all(std::move(requests));
    std::vector<std::size_t> still_open;
    for (std::size_t r = 0; r < results.size(); ++r) {
      const std::size_t i = open[r];
      Listing& listing = listings[i];
      ApiResult& result = results[r];
      if (result.status == k_gone && !next[i].empty()) {
        listing.items.clear();
        next[i].clear();
        still_open.push_back(i);
        continue;
      }
      if (!result.ok()) {
        fail(result);
      }
      for (json& item : result.body["items"]) {
        listing.items.push_back(std::move(item));
      }
      const json& metadata = result.body["metadata"];
      listing.resource_version = metadata.value("resourceVersion", "");
      next[i] = metadata.value("continue", "");
      if (!next[i].empty()) {
        still_open.push_back(i);
      }
    }
    open = std::move(still_open);
  }
  return listings;
}

} // namespace dtrain::kubernetes
