// A bucket's store may answer anything: a listing is read or refused, no object of it leaves the
// folder that it is copied to, and an error's text is one line.
#include "backends/support/bucket/bucket_client.h"
#include "backends/support/bucket/bucket_copy.h"
#include "submit/errors.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>

namespace {

void check_key(const std::string& key) {
  dtrain::Bucket bucket;
  bucket.prefix = "data";
  std::string path;
  try {
    path = dtrain::path_of_key(bucket, key);
  } catch (const dtrain::Error&) {
    return;
  }
  if (path.starts_with('/')) {
    std::abort();
  }
  for (const auto& part : std::filesystem::path(path)) {
    if (part == ".." || part == ".") {
      std::abort();
    }
  }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  check_key(text.c_str()); // none from XML holds a NUL
  try {
    for (const dtrain::BucketObject& object : dtrain::read_bucket_page(text).objects) {
      if (object.size < 0) {
        std::abort();
      }
      check_key(object.key);
    }
  } catch (const dtrain::Error& error) {
    if (std::string(error.what()).find('\n') != std::string::npos) {
      std::abort();
    }
  }
  if (dtrain::read_bucket_error(text).find('\n') != std::string::npos) {
    std::abort();
  }
  return 0;
}
