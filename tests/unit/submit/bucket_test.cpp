#include "submit/bucket.h"

#include "submit/errors.h"
#include "submit/text/url.h"

#include <doctest/doctest.h>

using namespace dtrain;

TEST_CASE("a bucket's text is read as it was written") {
  Bucket bucket{"s3", "pics", "a/b", "https://minio:9000", "eu-west-1", "/home/a b/keys:1&2"};
  const Bucket again = parse_bucket("--data", bucket.text());
  CHECK(bucket.text().find(":/", 5) == std::string::npos); // As --data's mount it ends at ":/".
  CHECK(again.text() == bucket.text());
  CHECK(again.endpoint == bucket.endpoint);
  CHECK(again.credentials_file == bucket.credentials_file);
  CHECK(again.shown() == "s3://pics/a/b");
  CHECK(parse_bucket("", "oss://pics/").prefix.empty());
  CHECK(parse_bucket("", "s3://pics/a//").prefix == "a");
}

TEST_CASE("a bucket is asked where its cloud or its store expects it") {
  const auto url = [](const char* text) { return parse_bucket("", text).url(); };
  CHECK(url("s3://pics") == "https://pics.s3.us-east-1.amazonaws.com");
  CHECK(url("s3://pics?region=eu-west-1") == "https://pics.s3.eu-west-1.amazonaws.com");
  CHECK(url("s3://my.pics") == "https://s3.us-east-1.amazonaws.com/my.pics");
  CHECK(url("s3://pics?endpoint=http%3A//minio:9000/") == "http://minio:9000/pics");
  CHECK(url("oss://pics/x?region=cn-hangzhou") == "https://pics.s3.oss-cn-hangzhou.aliyuncs.com");
  CHECK(url("oss://pics?endpoint=https%3A//s3.oss-cn-beijing.aliyuncs.com") ==
        "https://pics.s3.oss-cn-beijing.aliyuncs.com");
  CHECK(url("oss://pics?endpoint=http%3A//127.0.0.1:80") == "http://127.0.0.1:80/pics");
}

TEST_CASE("what is no bucket is refused") {
  for (const char* text : {"s3://", "ftp://pics", "s3://a b", "s3://pics?x", "s3://pics?a=b",
                           "s3://pics?endpoint=minio", "s3://pics?endpoint=https%3A//u:p@minio",
                           "s3://pics?region=a/b", "s3://pics?region=%2"}) {
    CAPTURE(text);
    CHECK_THROWS_AS(parse_bucket("--data", text), UsageError);
  }
}

TEST_CASE("a query is read back as it was escaped") {
  const std::string odd = "a&b=c %/:\xc3\xbc";
  const auto query = parse_query("k=" + escape_url(odd) + "&empty=");
  REQUIRE(query.has_value());
  REQUIRE(query->size() == 2);
  CHECK(query->at(0).second == odd);
  CHECK(query->at(1) == std::pair<std::string, std::string>("empty", ""));
  for (const char* text : {"=a", "a", "a=%", "a=%2", "a=%-1", "&"}) {
    CAPTURE(text);
    CHECK_FALSE(parse_query(text).has_value());
  }
}
