// A collection of objects, kept current: a list, then a watch from its resourceVersion.
//
// The server's bookmarks advance the version, so that a broken connection continues where it
// stopped; a version that the server has forgotten (410) starts over with a list. While the server
// cannot be reached, the collection keeps its contents and tries again, first at once, then after
// pauses that double up to k_longest_pause.
#pragma once

#include "backends/kubernetes/api/api_client.h"
#include "backends/kubernetes/objects/objects.h"

#include <chrono>
#include <functional>
#include <map>
#include <string>

namespace dtrain::kubernetes {

class Collection {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds k_first_pause{200};
  static constexpr std::chrono::milliseconds k_longest_pause{5000};

  /// `path` with `query` (labelSelector, fieldSelector) selects the objects. Nothing is sent yet.
  Collection(ApiClient& api, std::string path, Query query);
  ~Collection();
  Collection(const Collection&) = delete;
  Collection& operator=(const Collection&) = delete;

  /// Lists and begins to watch. Throws as ApiClient::list() does: the first time, errors are the
  /// user's to see.
  void start();

  /// The same from a list that the caller has.
  void start(ApiClient::Listing listing);

  /// Opens the watch again where it ended and its pause is over. To be called after each
  /// HttpClient::run_once(). Throws EngineError where the server answers, and goes on refusing.
  void tend();

  /// Keyed by uid.
  const std::map<std::string, ObjectPtr>& objects() const { return objects_; }

  /// Changes since the last call.
  bool take_changed() { return std::exchange(changed_, false); }

  /// Time until tend() has something to do; a long time where the watch is open.
  std::chrono::milliseconds next_tend() const;

 private:
  void fill(ApiClient::Listing listing);
  void watch();
  bool on_bytes(std::string_view bytes);
  void on_event(const nlohmann::json& event);
  void on_end(const HttpResponse& response);
  void pause();

  ApiClient& api_;
  std::string path_;
  Query query_;
  std::map<std::string, ObjectPtr> objects_;
  std::string resource_version_;
  std::string partial_line_;
  HttpClient::StreamId stream_ = 0;
  bool open_ = false;
  bool must_list_ = false;
  bool changed_ = false;
  int refusals_ = 0;    // Consecutive ones.
  std::string refusal_; // The last one's words.
  std::chrono::milliseconds pause_{0};
  Clock::time_point retry_at_;
};

} // namespace dtrain::kubernetes
