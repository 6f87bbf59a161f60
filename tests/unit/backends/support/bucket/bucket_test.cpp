#include "backends/support/bucket/bucket_client.h"
#include "backends/support/bucket/bucket_copy.h"
#include "backends/support/bucket/bucket_keys.h"
#include "submit/errors.h"
#include "tests/unit/backends/temporary_folder.h"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <fstream>

using namespace dtrain;

TEST_CASE("a page of a bucket is read with all that a name may hold") {
  const BucketPage page = read_bucket_page(
      "<?xml version=\"1.0\"?><ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">"
      "<IsTruncated>true</IsTruncated><NextContinuationToken>t+/=</NextContinuationToken>"
      "<Contents><Key>a &amp; b/&#252;</Key><LastModified>2026-11-21T00:00:01.500Z</LastModified>"
      "<ETag>&quot;x&quot;</ETag><Size>5368709120</Size></Contents></ListBucketResult>");
  CHECK(page.next == "t+/=");
  REQUIRE(page.objects.size() == 1);
  CHECK(page.objects[0].key == "a & b/\xc3\xbc");
  CHECK(page.objects[0].etag == "\"x\"");
  CHECK(page.objects[0].size == 5368709120);
  CHECK(page.objects[0].modified == 1795219201);
  for (const char* text :
       {"", "<Error/>", "<ListBucketResult>", "<ListBucketResult><Contents/></ListBucketResult>",
        "<ListBucketResult><Contents><Key>a</Key><Size>-1</Size></Contents></ListBucketResult>",
        "<ListBucketResult><Contents><Key>a</Key><Size>1</Size><ETag>a&#13;&#10;b</ETag></Contents>"
        "</ListBucketResult>"}) {
    CAPTURE(text);
    CHECK_THROWS_AS(read_bucket_page(text), Error);
  }
}

TEST_CASE("a store's refusal is told in its own words, on one line") {
  CHECK(read_bucket_error("<Error><Code>NoSuchBucket</Code><Message>Not\nhere</Message></Error>") ==
        "NoSuchBucket: Not\\nhere");
  CHECK(read_bucket_error("<html>").empty());
}

TEST_CASE("an object's path is below the bucket's folder, or it is refused") {
  const Bucket bucket{"s3", "pics", "set", "", "", ""};
  CHECK(path_of_key(bucket, "set/a/b") == "a/b");
  CHECK(path_of_key(bucket, "set/").empty());
  CHECK(path_of_key(bucket, "set/a/").empty());
  CHECK(path_of_key({"s3", "pics", "", "", "", ""}, "a") == "a");
  for (const char* key : {"set/../a", "set/a/..", "set//a", "set/a//b", "set/./a", "other/a",
                          "set/.dtrain-parts/a"}) {
    CAPTURE(key);
    CHECK_THROWS_AS(path_of_key(bucket, key), Error);
  }
}

TEST_CASE("keys are taken from the file that was named, of the profile that was chosen") {
  const test::TemporaryFolder folder;
  const std::string path = folder / "keys";
  std::ofstream(path) << "# mine\n[default]\naws_access_key_id=a\naws_secret_access_key = b=c \n"
                         "[ other ]\r\naws_access_key_id = d\r\naws_secret_access_key=e\r\n"
                         "aws_session_token=f\r\n[empty]\n";
  chmod(path.c_str(), 0600);
  Bucket bucket{"s3", "pics", "", "", "", path};
  CHECK(bucket_keys(bucket).id == "a");
  CHECK(bucket_keys(bucket).secret == "b=c");
  setenv("AWS_PROFILE", "other", 1);
  CHECK(bucket_keys(bucket).session_token == "f");
  setenv("AWS_PROFILE", "empty", 1);
  CHECK_THROWS_AS(bucket_keys(bucket), UsageError);
  unsetenv("AWS_PROFILE");
  chmod(path.c_str(), 0640);
  CHECK_THROWS_AS(bucket_keys(bucket), UsageError);
}
