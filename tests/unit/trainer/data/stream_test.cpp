#include "trainer/data/stream.h"

#include <atomic>
#include <csignal>
#include <cstring>
#include <future>
#include <numeric>

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/trainer/temp_folder.h"
#include "tests/unit/waiting.h"
#include "trainer/errors.h"

namespace trainer {
namespace {

constexpr std::size_t k_classes = 10;
constexpr std::size_t k_pixels = 4096; ///< An image's; a pipe holds 16 of them.
constexpr std::size_t k_batch = 8;
constexpr std::size_t k_window = k_batch * (2 + SampleStream::k_batches_ahead);

using Bytes = std::vector<std::uint8_t>;

Bytes header(std::uint8_t dimensions, std::size_t count, std::uint8_t type = 8) {
  Bytes bytes = {0,
                 0,
                 type,
                 dimensions,
                 0,
                 0,
                 static_cast<std::uint8_t>(count >> 8),
                 static_cast<std::uint8_t>(count)};
  for (int i = 1; i < dimensions; ++i) {
    bytes.insert(bytes.end(), {0, 0, 0, 64});
  }
  return bytes;
}

Bytes images(std::size_t first, std::size_t count) {
  Bytes bytes;
  for (std::size_t i = first; i < first + count; ++i) {
    bytes.insert(bytes.end(), k_pixels, static_cast<std::uint8_t>(i));
  }
  return bytes;
}

Bytes labels(std::size_t first, std::size_t count) {
  Bytes bytes;
  for (std::size_t i = first; i < first + count; ++i) {
    bytes.push_back(static_cast<std::uint8_t>(i % k_classes));
  }
  return bytes;
}

/// A FIFO and one end of it.
class Writer {
 public:
  explicit Writer(std::string path) : path_(std::move(path)) {
    REQUIRE(mkfifo(path_.c_str(), 0600) == 0);
    (void)std::signal(SIGPIPE, SIG_IGN);
  }
  const std::string& path() const { return path_; }

  /// Waits for a reader, and for room; false where the reader is gone.
  bool write(const Bytes& bytes) {
    if (!file_) {
      unit::wait_until([&] {
        file_ = Fd(open(path_.c_str(), O_WRONLY | O_CLOEXEC | O_NONBLOCK));
        return static_cast<bool>(file_);
      });
      REQUIRE(fcntl(file_.get(), F_SETFL, O_WRONLY) == 0);
    }
    for (std::size_t at = 0; at < bytes.size();) {
      const ssize_t put = ::write(file_.get(), bytes.data() + at, bytes.size() - at);
      if (put < 0) {
        return false;
      }
      at += static_cast<std::size_t>(put);
      written_ += static_cast<std::size_t>(put);
    }
    return true;
  }
  void end() { file_.reset(); }
  std::size_t written() const { return written_; }

 private:
  std::string path_;
  Fd file_;
  std::atomic<std::size_t> written_ = 0;
};

struct Fifos {
  TempFolder folder;
  Writer images{folder / "images"};
  Writer labels{folder / "labels"};
};

/// Reads a batch and checks that it is numbers `first` and on.
void check_batch(
    SampleStream& stream, std::size_t reader, std::size_t first, std::size_t rows,
    const std::function<void()>& while_waiting = [] {}) {
  Bytes got_images;
  std::vector<std::int32_t> got_labels;
  stream.read(reader, first, rows, while_waiting,
              [&](std::size_t /*number*/, const std::uint8_t* image, std::int32_t label) {
                got_images.insert(got_images.end(), image, image + k_pixels);
                got_labels.push_back(label);
              });
  CHECK(got_images == images(first, rows));
  const Bytes expected = labels(first, rows);
  CHECK(got_labels == std::vector<std::int32_t>(expected.begin(), expected.end()));
}

/// What reading one batch throws.
std::string failure_of(SampleStream& stream, std::size_t first) {
  try {
    check_batch(stream, 0, first, k_batch);
  } catch (const DataError& error) {
    return error.what();
  }
  return "";
}

TEST_CASE("samples of a stream are there before the stream is whole") {
  Fifos fifos;
  std::atomic<bool> is_read = false;
  auto writing = std::async(std::launch::async, [&] {
    fifos.images.write(header(3, 64));
    fifos.labels.write(header(1, 64));
    fifos.images.write(images(0, k_batch));
    fifos.labels.write(labels(0, k_batch));
    unit::wait_until([&] { return is_read.load(); });
    fifos.images.write(images(k_batch, 64 - k_batch));
    fifos.labels.write(labels(k_batch, 64 - k_batch));
    fifos.images.end();
    fifos.labels.end();
  });
  SampleStream stream(fifos.images.path(), fifos.labels.path(), k_classes);
  CHECK(stream.count() == 64);
  CHECK(stream.height() * stream.width() == k_pixels);
  stream.begin(1, k_batch);
  check_batch(stream, 0, 0, k_batch);
  is_read = true;
  for (std::size_t first = k_batch; first < 64; first += k_batch) {
    check_batch(stream, 0, first, k_batch);
  }
  writing.get();
}

TEST_CASE("a stream's writer is held back where the window is full") {
  constexpr std::size_t k_samples = 2000;
  constexpr std::size_t k_pipe = 65536;
  Fifos fifos;
  auto writing = std::async(std::launch::async, [&] {
    fifos.labels.write(header(1, k_samples));
    fifos.labels.write(labels(0, k_samples));
    fifos.images.write(header(3, k_samples));
    fifos.images.write(images(0, k_samples));
  });
  SampleStream stream(fifos.images.path(), fifos.labels.path(), k_classes, 60, 0);
  stream.begin(1, k_batch);
  REQUIRE(stream.window() == k_window);
  for (std::size_t first = 0; first < k_samples; first += k_batch) {
    check_batch(stream, 0, first, k_batch);
    const std::size_t most = (first + k_batch + k_window) * k_pixels + k_pipe + 16;
    if (fifos.images.written() > most) {
      FAIL_CHECK("after " << first << " samples " << fifos.images.written() << " bytes");
    }
  }
  writing.get();
}

TEST_CASE("replicas share a stream, each with rows of its own") {
  constexpr std::size_t k_samples = 640;
  Fifos fifos;
  auto writing = std::async(std::launch::async, [&] {
    fifos.labels.write(header(1, k_samples));
    fifos.images.write(header(3, k_samples));
    for (std::size_t first = 0; first < k_samples; first += 10) {
      fifos.images.write(images(first, 10));
      fifos.labels.write(labels(first, 10));
    }
  });
  SampleStream stream(fifos.images.path(), fifos.labels.path(), k_classes, 60, 0);
  std::atomic<std::size_t> steps[2] = {0, 0};
  const auto replica = [&](std::size_t own) {
    stream.begin(2, 2 * k_batch);
    for (std::size_t step = 0; step < k_samples / (2 * k_batch); ++step) {
      check_batch(stream, own, (2 * step + own) * k_batch, k_batch);
      // In lockstep, as a sum of gradients makes them.
      steps[own] = step + 1;
      unit::wait_until([&] { return steps[1 - own] > step; });
    }
  };
  auto other = std::async(std::launch::async, replica, 1);
  replica(0);
  other.get();
  writing.get();
}

TEST_CASE("a stream that ends before its samples have come is an error that says where") {
  Fifos fifos;
  std::atomic<bool> is_read = false;
  auto writing = std::async(std::launch::async, [&] {
    fifos.images.write(header(3, 100));
    fifos.labels.write(header(1, 100));
    fifos.labels.write(labels(0, 100));
    fifos.images.write(images(0, k_batch));
    unit::wait_until([&] { return is_read.load(); });
    fifos.images.write(Bytes(10));
    fifos.images.end();
  });
  SampleStream stream(fifos.images.path(), fifos.labels.path(), k_classes);
  stream.begin(1, k_batch);
  check_batch(stream, 0, 0, k_batch);
  is_read = true;
  const std::string text = failure_of(stream, k_batch);
  CHECK(text == fifos.images.path() + ": truncated: 32778 of 409600 bytes of values have come");
  writing.get();
}

TEST_CASE("a stream's labels may be of more classes than a byte has values") {
  constexpr std::size_t k_samples = 640;
  struct Type {
    std::uint8_t code;
    int bytes;
    std::int32_t step; ///< From a sample's label to the next.
  };
  for (const Type& type : {Type{0x0B, 2, 51}, {0x0C, 4, 3'000'000}}) {
    Fifos fifos;
    auto writing = std::async(std::launch::async, [&] {
      fifos.images.write(header(3, k_samples));
      fifos.labels.write(header(1, k_samples, type.code));
      for (std::size_t i = 0; i < k_samples; ++i) {
        fifos.images.write(images(i, 1));
        const std::int32_t label = static_cast<std::int32_t>(i) * type.step;
        for (int shift = 8 * type.bytes; shift > 0; shift -= 8) { // A byte at a time.
          fifos.labels.write({static_cast<std::uint8_t>(label >> (shift - 8))});
        }
      }
    });
    SampleStream stream(fifos.images.path(), fifos.labels.path(), 2'000'000'000, 60, 0);
    stream.begin(1, k_batch);
    REQUIRE(stream.window() < k_samples);
    for (std::size_t first = 0; first < k_samples; first += k_batch) {
      std::vector<std::int32_t> found;
      stream.read(
          0, first, k_batch, [] {},
          [&](std::size_t /*number*/, const std::uint8_t* /*image*/, std::int32_t label) {
            found.push_back(label / type.step);
            CHECK(label % type.step == 0);
          });
      for (std::size_t i = 0; i < k_batch; ++i) {
        CHECK(found[i] == static_cast<std::int32_t>(first + i));
      }
    }
    writing.get();
  }
}

TEST_CASE("what a stream's labels are is checked as they come") {
  struct Case {
    Bytes labels;
    const char* says;
  };
  Bytes bad = labels(0, 20);
  bad[5] = 77;
  Bytes wrong = header(1, 20);
  wrong.insert(wrong.end(), bad.begin(), bad.end());
  Bytes negative = header(1, 20, 0x0B);
  negative.insert(negative.end(), {0, 9, 0xff, 0xfe});
  negative.resize(negative.size() + 36);
  Bytes gzip(20);
  gzip[0] = 0x1f;
  gzip[1] = 0x8b;
  for (const Case& one : {Case{wrong, "label 77 at position 5"},
                          {negative, "label -2 at position 1"},
                          {header(1, 21), "21 labels for the 20"},
                          {header(1, 20, 9), "where IDX labels have 2049, 2817 or 3073"},
                          {{0, 0, 8}, "3 bytes are no IDX file"},
                          {gzip, "gzip"}}) {
    Fifos fifos;
    auto writing = std::async(std::launch::async, [&] {
      fifos.images.write(header(3, 20));
      fifos.labels.write(one.labels);
      fifos.labels.end();
      fifos.images.write(images(0, k_batch)); // Others may not be read.
    });
    SampleStream stream(fifos.images.path(), fifos.labels.path(), k_classes);
    stream.begin(1, k_batch);
    const std::string text = failure_of(stream, 0);
    CAPTURE(text);
    CHECK(text.starts_with(fifos.labels.path()));
    CHECK(text.find(one.says) != std::string::npos);
    writing.get();
  }
}

TEST_CASE(
    "a writer of images first and labels then is told so where the window does not hold all") {
  constexpr std::size_t k_samples = 200;
  Fifos fifos;
  auto writing = std::async(std::launch::async, [&] {
    if (fifos.images.write(header(3, k_samples)) && fifos.images.write(images(0, k_samples))) {
      fifos.labels.write(header(1, k_samples));
      fifos.labels.write(labels(0, k_samples));
    }
  });
  {
    SampleStream small(fifos.images.path(), fifos.labels.path(), k_classes, 0.3, 0);
    small.begin(1, k_batch);
    const std::string text = failure_of(small, 0);
    CHECK(text.find("write images and labels side by side") != std::string::npos);
    CHECK(text.starts_with(fifos.labels.path()));
  }
  writing.get();
  Fifos again;
  writing = std::async(std::launch::async, [&] {
    again.images.write(header(3, k_samples));
    again.images.write(images(0, k_samples));
    again.labels.write(header(1, k_samples));
    again.labels.write(labels(0, k_samples));
  });
  SampleStream whole(again.images.path(), again.labels.path(), k_classes, 0.3);
  whole.begin(1, k_batch);
  check_batch(whole, 0, 0, k_batch);
  writing.get();
}

TEST_CASE("who waits for a stream whose writer is silent hears of a lost peer") {
  Fifos fifos;
  auto writing = std::async(std::launch::async, [&] { fifos.images.write(header(3, 100)); });
  SampleStream stream(fifos.images.path(), fifos.labels.path(), k_classes);
  stream.begin(1, k_batch);
  CHECK_THROWS_AS(check_batch(stream, 0, 0, k_batch, [] { throw PeerError("rank 1 is gone"); }),
                  PeerError);
  writing.get();
}

} // namespace
} // namespace trainer
