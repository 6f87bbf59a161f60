// The Kubernetes API: objects as JSON, errors as the API words them, lists page by page.
#pragma once

#include "backends/kubernetes/api/credentials.h"
#include "backends/kubernetes/api/http_client.h"
#include "backends/kubernetes/api/kubeconfig.h"
#include "backends/kubernetes/api/web_socket.h"
#include "submit/errors.h"
#include "submit/text/url.h"

#include <nlohmann/json.hpp>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace dtrain::kubernetes {

/// The name of our changes in an object's managedFields.
inline constexpr const char* k_field_manager = "dtrain";

/// The server knows us and refuses: a right is missing.
struct Forbidden : EngineError {
  using EngineError::EngineError;
};

/// An answer that is not an error of transport or identity.
struct ApiResult {
  long status = 0;
  nlohmann::json body;
  std::string date = {}; ///< The server's, as it came: HttpResponse::date.
  bool ok() const { return status >= 200 && status < 300; }
  std::string reason() const;  ///< The Status's: "AlreadyExists", "NotFound", "Forbidden"…
  std::string message() const; ///< The Status's, one line.
};

using Query = std::vector<std::pair<std::string, std::string>>;

/// "?a=b&c=d", escaped; empty for an empty query.
std::string query_text(const Query& query);

class ApiClient {
 public:
  explicit ApiClient(ClusterAccess access);

  const ClusterAccess& access() const { return access_; }
  HttpClient& http() { return http_; }

  HttpRequest request(std::string method, std::string path, const Query& query = {});

  /// A request with a JSON body.
  HttpRequest request(std::string method, std::string path, const Query& query,
                      const nlohmann::json& body, std::string content_type = "application/json");

  HttpRequest create(std::string path, const nlohmann::json& object, bool dry_run = false);

  /// Server-side apply: `object` holds the fields that shall be `manager`'s, taken over from
  /// others, and all that it applied before and are not in `object` go.
  HttpRequest apply(std::string path, const nlohmann::json& object, const std::string& manager);

  /// Sets the fields that `change` has, and no others.
  HttpRequest merge(std::string path, const nlohmann::json& change);

  /// The same, but lists whose entries have a key (owners) are extended by the entries of `change`.
  HttpRequest extend(std::string path, const nlohmann::json& change);

  /// Deletes in the background: the owner now, its dependents by the garbage collector.
  HttpRequest remove(std::string path, const std::string& uid = {});

  /// Sends. Throws EngineError where the server cannot be reached, doesn't answer in JSON, or
  /// says 401 even to renewed credentials. Other errors are the caller's to read.
  ApiResult call(HttpRequest request);
  std::vector<ApiResult> call_all(std::vector<HttpRequest> requests);

  /// call(), where any error is thrown.
  nlohmann::json must(HttpRequest request);

  /// A connection of its own, as a WebSocket in one of `protocols`. Throws as must() does where it
  /// is refused.
  std::unique_ptr<WebSocket> open_socket(const std::string& path, const Query& query,
                                         const std::vector<std::string>& protocols);

  /// The contents of a collection. A list that changes between its pages starts over (410).
  struct Listing {
    std::vector<nlohmann::json> items;
    std::string resource_version;
  };
  Listing list(const std::string& path, Query query = {});

  /// Several, page by page.
  std::vector<Listing> list_all(const std::vector<std::pair<std::string, Query>>& collections);

  /// Throws what `result`'s error is: NotFound for 404, Forbidden for 403, EngineError for the
  /// rest.
  [[noreturn]] void fail(const ApiResult& result) const;

  /// The server and the source of its address, for messages.
  std::string where() const;

  /// The bearer token as of now, for streams.
  bool renew_credentials() { return credentials_.expire(); }

 private:
  void authorize(HttpRequest& request);
  ApiResult read(const HttpResponse& response) const;
  [[noreturn]] void throw_unauthorized(const ApiResult& result) const;

  ClusterAccess access_;
  HttpClient http_;
  Credentials credentials_;
};

} // namespace dtrain::kubernetes
