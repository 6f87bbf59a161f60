// Lists and reads a bucket in its store, over libcurl with its request signing
// (https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-authenticating-requests.html).
#pragma once

#include "backends/support/bucket/bucket_keys.h"
#include "backends/support/http/curl_library.h"
#include "backends/support/http/http_server.h"
#include "submit/bucket.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace dtrain {

struct BucketObject {
  std::string key;
  std::string etag;          ///< With its quotes; differs if the bytes differ.
  std::int64_t size = 0;     ///< Bytes.
  std::int64_t modified = 0; ///< Seconds since the epoch.
};

/// An answer of ListObjectsV2.
struct BucketPage {
  std::vector<BucketObject> objects;
  std::string next; ///< The token to go on with; empty: that was all.
};

/// Throws Error where it is no such answer.
BucketPage read_bucket_page(std::string_view xml);

/// "NoSuchBucket: The specified bucket does not exist"; empty where the store's answer says
/// nothing.
std::string read_bucket_error(std::string_view xml);

class BucketClient {
 public:
  static constexpr int k_most_objects = 1000; ///< Of a page, by the protocol.

  /// Opens nothing yet. Throws EngineError where libcurl is missing.
  BucketClient(Bucket bucket, BucketKeys keys);
  ~BucketClient();
  BucketClient(const BucketClient&) = delete;
  BucketClient& operator=(const BucketClient&) = delete;

  const Bucket& bucket() const { return bucket_; }

  /// The first page, or the one that `token` says. Throws EngineError where the store cannot be
  /// reached, UsageError with its own words where it refuses.
  /// `tell` is called some ten times a second; one that throws ends the wait.
  BucketPage list(const std::string& token, int most, const std::function<void()>& tell);

  /// An object on its way into a file that is open to write.
  struct Fetch {
    const BucketObject* object = nullptr;
    int file = -1;
  };

  /// Brings objects, several at a time: asks `next` for them until it says false, and tells `done`
  /// of each whose bytes are all there. `tell` hears of bytes as they come (negative: they come
  /// once more), and is called some ten times a second at least. What breaks off is tried again a
  /// few times. Throws as list() does; Error for an object that has changed or cannot be written.
  void fetch(const std::function<bool(Fetch&)>& next, const std::function<void(const Fetch&)>& done,
             const std::function<void(std::int64_t)>& tell);

 private:
  struct Transfer;
  struct Work;

  void start(Transfer& transfer, const std::string& path);
  CURLcode perform(Transfer& transfer, const std::function<void()>& tell);
  void begin(Work& work, std::unique_ptr<Transfer> transfer);
  void try_again(Work& work, const Transfer& failed);
  bool collect(Work& work, const std::function<void(const Fetch&)>& done);
  [[noreturn]] void refuse(const Transfer& transfer, CURLcode code) const;

  const CurlLibrary& curl_;
  Bucket bucket_;
  BucketKeys keys_;
  HttpServer server_;
  CURLM* multi_ = nullptr;
};

} // namespace dtrain
