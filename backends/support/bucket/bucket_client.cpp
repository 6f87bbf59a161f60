#include "backends/support/bucket/bucket_client.h"

#include "backends/support/http/curl_handle.h"
#include "backends/support/os/files.h"
#include "submit/errors.h"
#include "submit/text/url.h"

#include <fmt/format.h>
#include <pugixml.hpp>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <list>
#include <memory>
#include <thread>
#include <utility>

#include <unistd.h>

namespace dtrain {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t k_at_once = 16;
constexpr std::size_t k_most_text = 16U << 20U; ///< Of a page or an error; a page has about 400 KB.
constexpr int k_attempts = 5;
constexpr auto k_tick = std::chrono::milliseconds(100);
constexpr long k_silence_s = 60; ///< A store that is silent for so long is considered dead.
constexpr long k_too_many = 429;
constexpr long k_server_error = 500;
constexpr const char* k_digest_of_nothing =
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/// Seconds since the epoch of "2026-11-21T13:05:07.000Z"; 0 where it is no time.
std::int64_t seconds_of(const char* text) {
  std::tm parts{};
  return strptime(text, "%Y-%m-%dT%H:%M:%S", &parts) == nullptr ? 0 : timegm(&parts);
}

std::string path_of(const std::string& key) {
  std::string path;
  for (std::size_t begin = 0; begin <= key.size();) {
    const std::size_t end = std::min(key.find('/', begin), key.size());
    path += "/" + escape_url(std::string_view(key).substr(begin, end - begin));
    begin = end + 1;
  }
  return path;
}

} // namespace

BucketPage read_bucket_page(std::string_view xml) {
  pugi::xml_document document;
  const pugi::xml_node list = document.load_buffer(xml.data(), xml.size())
                                  ? document.child("ListBucketResult")
                                  : pugi::xml_node();
  if (!list) {
    throw Error("its store did not answer with an S3 object list; check the endpoint");
  }
  BucketPage page;
  for (const pugi::xml_node object : list.children("Contents")) {
    page.objects.push_back({object.child_value("Key"), object.child_value("ETag"),
                            object.child("Size").text().as_llong(-1),
                            seconds_of(object.child_value("LastModified"))});
    const BucketObject& read = page.objects.back();
    const bool is_line = std::all_of(read.etag.begin(), read.etag.end(),
                                     [](char c) { return c >= ' ' && c <= '~'; });
    if (read.key.empty() || read.size < 0 || !is_line) {
      throw Error("its store's list has an object without a name, a size or a tag");
    }
  }
  if (list.child("IsTruncated").text().as_bool()) {
    page.next = list.child_value("NextContinuationToken");
    if (page.next.empty()) {
      throw Error("its store's object list is truncated and has no continuation token");
    }
  }
  return page;
}

std::string read_bucket_error(std::string_view xml) {
  pugi::xml_document document;
  if (!document.load_buffer(xml.data(), xml.size())) {
    return "";
  }
  const pugi::xml_node error = document.child("Error");
  const std::string code = error.child_value("Code");
  const std::string message = error.child_value("Message");
  return printable(code + (code.empty() || message.empty() ? "" : ": ") + message);
}

/// A request under way: a page's, or an object's into its file.
struct BucketClient::Transfer : CurlHandle {
  Fetch fetch;
  std::string text;          ///< Of everything but an object.
  std::int64_t received = 0; ///< Of the object.
  std::string problem;       ///< Ours: why no more is wanted of it.
  int attempt = 1;
  Clock::time_point not_before{};
  CURLM* multi = nullptr;       ///< Which drives it; null: none does.
  std::int64_t* came = nullptr; ///< Counts the bytes of all objects.

  explicit Transfer(const CurlLibrary& library) : CurlHandle(library) {}
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;
  ~Transfer() {
    if (multi != nullptr) {
      curl.multi_remove_handle(multi, easy);
    }
  }

  bool is_whole() const { return status() == k_ok && received == fetch.object->size; }

  /// Whether another attempt may help: a store under load, or a network failure.
  bool may_pass(CURLcode code) const {
    return problem.empty() &&
           (code != CURLE_OK || status() >= k_server_error || status() == k_too_many);
  }

  long status() const {
    long code = 0;
    curl.easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &code);
    return code;
  }

  std::size_t take(std::string_view bytes) {
    if (fetch.object == nullptr || status() != k_ok) {
      if (text.size() + bytes.size() > k_most_text) {
        problem = "its store's answer is too long";
        return 0;
      }
      text += bytes;
      return bytes.size();
    }
    received += static_cast<std::int64_t>(bytes.size());
    *came += static_cast<std::int64_t>(bytes.size());
    if (received > fetch.object->size) {
      problem = "is longer than its store said; it has changed, try again";
      return 0;
    }
    if (!write_all(fetch.file, bytes)) {
      problem = "cannot be written: " + errno_text();
      return 0;
    }
    return bytes.size();
  }

  static std::size_t on_body(char* data, std::size_t size, std::size_t count, void* self) {
    return static_cast<Transfer*>(self)->take({data, size * count});
  }
};

BucketClient::BucketClient(Bucket bucket, BucketKeys keys)
    : curl_(curl_library()), bucket_(std::move(bucket)), keys_(std::move(keys)),
      multi_(curl_.multi_init()) {
  if (multi_ == nullptr) {
    throw EngineError("libcurl cannot start: out of memory");
  }
  server_.url = bucket_.url();
}

BucketClient::~BucketClient() { curl_.multi_cleanup(multi_); }

void BucketClient::start(Transfer& transfer, const std::string& path) {
  transfer.aim(server_, path);
  transfer.set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  transfer.set(CURLOPT_PATH_AS_IS, 1L);
  transfer.set(CURLOPT_LOW_SPEED_LIMIT, 1L);
  transfer.set(CURLOPT_LOW_SPEED_TIME, k_silence_s);
  transfer.set(CURLOPT_WRITEFUNCTION, &Transfer::on_body);
  transfer.set(CURLOPT_WRITEDATA, &transfer);
  transfer.set(CURLOPT_PRIVATE, &transfer);
  transfer.header("User-Agent: dtrain");
  if (!keys_.id.empty()) {
    const std::string provider =
        fmt::format("aws:amz:{}:s3", bucket_.region.empty() ? k_default_region : bucket_.region);
    transfer.set(CURLOPT_AWS_SIGV4, provider.c_str());
    transfer.set(CURLOPT_USERNAME, keys_.id.c_str());
    transfer.set(CURLOPT_PASSWORD, keys_.secret.c_str());
    transfer.header(fmt::format("x-amz-content-sha256: {}", k_digest_of_nothing));
    if (!keys_.session_token.empty()) {
      transfer.header("x-amz-security-token: " + keys_.session_token);
    }
  }
  if (transfer.fetch.object != nullptr) {
    transfer.header("If-Match: " + transfer.fetch.object->etag);
  }
  transfer.set(CURLOPT_HTTPHEADER, transfer.headers);
}

void BucketClient::refuse(const Transfer& transfer, CURLcode code) const {
  const std::string what = transfer.fetch.object == nullptr
                               ? printable(bucket_.shown())
                               : printable(fmt::format("{}://{}/{}", bucket_.scheme, bucket_.name,
                                                       transfer.fetch.object->key));
  if (!transfer.problem.empty()) {
    throw Error(fmt::format("{}: {}", what, transfer.problem));
  }
  const long status = transfer.status();
  if (code == CURLE_OK && status == k_ok) {
    throw Error(fmt::format("{}: is shorter than its store said; try again", what));
  }
  if (code != CURLE_OK) {
    throw EngineError(fmt::format("{}: cannot reach its store at {}: {}", what, server_.url,
                                  printable(transfer.words(code))));
  }
  const std::string said = read_bucket_error(transfer.text);
  if (transfer.fetch.object != nullptr &&
      (status == k_precondition_failed || status == k_not_found)) {
    throw Error(fmt::format("{}: has changed since the bucket was listed; try again", what));
  }
  const bool is_access = status == k_forbidden || status == k_unauthorized;
  throw UsageError(fmt::format(
      "{}: its store refuses: {}{}", what, said.empty() ? fmt::format("HTTP {}", status) : said,
      !is_access         ? ""
      : keys_.id.empty() ? "; give keys: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the "
                           "environment, or --credentials-file of 'dtrain data add'"
                         : "; check the keys and their permission to read"));
}

CURLcode BucketClient::perform(Transfer& transfer, const std::function<void()>& tell) {
  transfer.multi = multi_;
  curl_.multi_add_handle(multi_, transfer.easy);
  for (;;) {
    int running = 0;
    curl_.multi_perform(multi_, &running);
    int left = 0;
    if (const CURLMsg* message = curl_.multi_info_read(multi_, &left)) {
      return message->data.result;
    }
    curl_.multi_poll(multi_, nullptr, 0, static_cast<int>(k_tick.count()), nullptr);
    tell();
  }
}

BucketPage BucketClient::list(const std::string& token, int most,
                              const std::function<void()>& tell) {
  std::string query = "/?";
  if (!token.empty()) { // In the order of their names, as it is signed.
    query += fmt::format("continuation-token={}&", escape_url(token));
  }
  query += fmt::format("list-type=2&max-keys={}&prefix={}", most,
                       escape_url(bucket_.prefix + (bucket_.prefix.empty() ? "" : "/")));
  for (int attempt = 1;; ++attempt) {
    Transfer transfer(curl_);
    start(transfer, query);
    const CURLcode code = perform(transfer, tell);
    const long status = transfer.status();
    if (code == CURLE_OK && status == k_ok) {
      try {
        return read_bucket_page(transfer.text);
      } catch (const Error& error) {
        throw Error(fmt::format("{}: {}", printable(bucket_.shown()), error.what()));
      }
    }
    if (code != CURLE_OK || !transfer.may_pass(code) || attempt == k_attempts) {
      refuse(transfer, code);
    }
    std::this_thread::sleep_for(attempt * k_tick);
  }
}

/// Objects that are being brought.
struct BucketClient::Work {
  std::list<std::unique_ptr<Transfer>> under_way;
  std::list<std::unique_ptr<Transfer>> waiting; ///< For another attempt.
  std::int64_t came = 0;                        ///< Bytes, since that was last reported.
};

void BucketClient::begin(Work& work, std::unique_ptr<Transfer> transfer) {
  start(*transfer, path_of(transfer->fetch.object->key));
  transfer->came = &work.came;
  transfer->multi = multi_;
  curl_.multi_add_handle(multi_, transfer->easy);
  work.under_way.push_back(std::move(transfer));
}

void BucketClient::try_again(Work& work, const Transfer& failed) {
  work.came -= failed.received;
  auto again = std::make_unique<Transfer>(curl_);
  again->fetch = failed.fetch;
  again->attempt = failed.attempt + 1;
  again->not_before = Clock::now() + failed.attempt * k_tick;
  if (ftruncate(again->fetch.file, 0) != 0 || lseek(again->fetch.file, 0, SEEK_SET) != 0) {
    throw Error(fmt::format("cannot begin a file again: {}", errno_text()));
  }
  work.waiting.push_back(std::move(again));
}

bool BucketClient::collect(Work& work, const std::function<void(const Fetch&)>& done) {
  bool moved = false;
  int left = 0;
  while (CURLMsg* message = curl_.multi_info_read(multi_, &left)) {
    moved = true;
    const CURLcode code = message->data.result;
    const auto at =
        std::find_if(work.under_way.begin(), work.under_way.end(),
                     [&](const auto& transfer) { return transfer->easy == message->easy_handle; });
    const std::unique_ptr<Transfer> ended = std::move(*at);
    work.under_way.erase(at);
    if (code == CURLE_OK && ended->is_whole()) {
      done(ended->fetch);
    } else if (ended->may_pass(code) && ended->attempt < k_attempts) {
      try_again(work, *ended);
    } else {
      refuse(*ended, code);
    }
  }
  return moved;
}

void BucketClient::fetch(const std::function<bool(Fetch&)>& next,
                         const std::function<void(const Fetch&)>& done,
                         const std::function<void(std::int64_t)>& tell) {
  Work work;
  bool has_more = true;
  while (has_more || !work.under_way.empty() || !work.waiting.empty()) {
    for (auto at = work.waiting.begin(); at != work.waiting.end();) {
      const auto due = at++;
      if ((*due)->not_before <= Clock::now()) {
        begin(work, std::move(*due));
        work.waiting.erase(due);
      }
    }
    while (has_more && work.under_way.size() + work.waiting.size() < k_at_once) {
      auto transfer = std::make_unique<Transfer>(curl_);
      has_more = next(transfer->fetch);
      if (has_more) {
        begin(work, std::move(transfer));
      }
    }
    int running = 0;
    curl_.multi_perform(multi_, &running);
    if (!collect(work, done) && !work.under_way.empty()) {
      curl_.multi_poll(multi_, nullptr, 0, static_cast<int>(k_tick.count()), nullptr);
    } else if (work.under_way.empty() && !work.waiting.empty()) {
      std::this_thread::sleep_for(k_tick);
    }
    tell(std::exchange(work.came, 0));
  }
}

} // namespace dtrain
