#include "backends/support/files/received_files.h"

#include "backends/support/files/packed_files.h"
#include "submit/errors.h"
#include "tests/unit/backends/temporary_folder.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <filesystem>
#include <functional>
#include <string>

#include <sys/stat.h>

using namespace dtrain;
namespace fs = std::filesystem;

namespace {

std::string padded(std::string text) {
  text.resize((text.size() + 511) / 512 * 512);
  return text;
}

/// An entry as ustar has it.
std::string entry(char type, const std::string& path, const std::string& bytes = "",
                  const std::string& target = "", unsigned mode = 0644) {
  std::string header(512, '\0');
  const auto put = [&](std::size_t at, const std::string& text) {
    header.replace(at, text.size(), text);
  };
  put(0, path.substr(0, 100));
  put(100, fmt::format("{:07o}", mode));
  put(124, fmt::format("{:011o}", bytes.size()));
  header[156] = type;
  put(157, target.substr(0, 100));
  put(257, std::string("ustar\00000", 8));
  put(148, "        ");
  unsigned sum = 0;
  for (const char c : header) {
    sum += static_cast<unsigned char>(c);
  }
  put(148, fmt::format("{:06o}", sum));
  header[154] = '\0';
  return header + padded(bytes);
}

std::string pax(const std::string& key, const std::string& value) {
  auto length = key.size() + value.size() + 3;
  length += fmt::format("{}", length + 2).size();
  return entry('x', "pax", fmt::format("{} {}={}\n", length, key, value));
}

const std::string k_end(1024, '\0');
const std::string k_root = entry('5', "./", "", "", 0755);

/// A destination beside which there is something that nobody is to reach.
struct Room {
  test::TemporaryFolder folder;
  std::string here = folder / "here";

  Room() {
    fs::create_directory(here);
    folder.write("outside", "safe");
  }

  void take(const std::string& archive, const std::string& name = "got") const {
    ReceivedFiles files(here, name);
    files.add(archive);
    files.place();
  }

  std::string refusal(const std::string& archive) const {
    try {
      take(archive);
    } catch (const Error& error) {
      CHECK(fs::is_empty(here));
      CHECK(test::read_text(folder / "outside") == "safe");
      return error.what();
    }
    FAIL("it was taken");
    return "";
  }
};

} // namespace

TEST_CASE("an archive that comes byte by byte is the same as one that comes at once") {
  const Room room;
  const std::string long_name(150, 'n');
  const auto archive = k_root + entry('5', "./deep/", "", "", 0700) +
                       entry('0', "./deep/a", std::string(1000, 'a'), "", 0640) +
                       entry('L', "././@LongLink", "./deep/" + long_name + '\0') +
                       entry('0', "./deep/n", "long") + pax("path", "./of pax") +
                       entry('0', "cut", "pax") + entry('1', "./hard", "", "./deep/a") +
                       entry('2', "./soft", "", "deep/a") + k_end;
  ReceivedFiles files(room.here, "got");
  for (const char c : archive) {
    files.add(std::string_view(&c, 1));
    CHECK_FALSE(fs::exists(room.here + "/got"));
  }
  files.place();
  const auto got = room.here + "/got/";
  CHECK(test::read_text(got + "deep/a") == std::string(1000, 'a'));
  CHECK(test::read_text(got + "deep/" + long_name) == "long");
  CHECK(test::read_text(got + "of pax") == "pax");
  CHECK(test::read_text(got + "hard") == std::string(1000, 'a'));
  CHECK(fs::read_symlink(got + "soft") == "deep/a");
  CHECK(files.left_out().empty());
  CHECK(files.files() == 4);
  struct stat status {};
  REQUIRE(stat((got + "deep/a").c_str(), &status) == 0);
  CHECK((status.st_mode & 0777) == 0640);
}

TEST_CASE("no name in an archive leads out of where it is unpacked") {
  const Room room;
  const auto file = [](const std::string& path) {
    return k_root + entry('0', path, "evil") + k_end;
  };
  CHECK(room.refusal(file("/tmp/evil")).find("absolute") != std::string::npos);
  CHECK(room.refusal(file("../outside")).find("leads out") != std::string::npos);
  CHECK(room.refusal(file("./a/../../outside")).find("leads out") != std::string::npos);
  CHECK(room.refusal(file("..")).find("leads out") != std::string::npos);
  CHECK(room.refusal(k_root + pax("path", "../outside") + entry('0', "a", "evil") + k_end)
            .find("leads out") != std::string::npos);
  CHECK(room.refusal(k_root + entry('1', "./hard", "", "../outside") + k_end).find("leads out") !=
        std::string::npos);
  room.refusal(k_root + entry('1', "./hard", "", "/etc/passwd") + k_end);
}

TEST_CASE("nothing is written through a link that an archive brings") {
  const Room room;
  // The file's folder is made first; the link, of that name, has no room then.
  room.refusal(k_root + entry('2', "./a", "", "deep") + entry('0', "./a/file", "evil") + k_end);
  room.refusal(k_root + entry('2', "./a", "", "b") + entry('0', "./a", "evil") + k_end);
}

TEST_CASE("links that lead out, by themselves or with others, and special files are left out") {
  const Room room;
  ReceivedFiles files(room.here, "got");
  files.add(k_root + entry('5', "./a/") + entry('5', "./a/b/") +
            entry('2', "./absolute", "", "/etc") + entry('2', "./up", "", "..") +
            entry('2', "./a/up", "", "../..") + entry('2', "./a/b/round", "", "..") +
            entry('2', "./later", "", "a/b/../../..") + entry('2', "./a/in", "", "../a/b") +
            entry('6', "./pipe") + entry('3', "./device") + k_end);
  files.place();
  CHECK(files.left_out().size() == 6);
  CHECK(fs::exists(room.here + "/got/a/in"));
  CHECK(fs::is_symlink(room.here + "/got/a/b/round"));
  for (const auto* name : {"absolute", "up", "a/up", "later", "pipe", "device"}) {
    CAPTURE(name);
    CHECK_FALSE(fs::is_symlink(room.here + "/got/" + name));
    CHECK_FALSE(fs::exists(room.here + "/got/" + name));
  }
}

TEST_CASE("an archive that is damaged, cut off or not what was asked for leaves nothing") {
  const Room room;
  CHECK(room.refusal(k_root + entry('0', "./a", "bytes")).find("was interrupted") !=
        std::string::npos);
  CHECK(room.refusal("").find("was interrupted") != std::string::npos);
  CHECK(room.refusal(k_end).find("was interrupted") != std::string::npos);
  auto damaged = entry('0', "./a", "bytes");
  damaged[0] ^= 1;
  CHECK(room.refusal(k_root + damaged + k_end).find("damaged") != std::string::npos);
  CHECK(room.refusal(k_root + entry('S', "./sparse", "x") + k_end).find("type 'S'") !=
        std::string::npos);
  room.refusal(k_root + entry('x', "pax", "99 path=short\n") + entry('0', "a") + k_end);
  room.refusal(k_root + entry('x', "pax", "x") + entry('0', "a") + k_end);
  room.refusal(k_root + entry('0', "./a", "1") + entry('0', "./a", "2") + k_end); // The same name.
  room.refusal(entry('0', "./one", "1") + entry('0', "./two", "2") + k_end);      // One file was.
  room.refusal(entry('2', "./one", "", "/etc/passwd") + k_end);
  auto huge = entry('0', "./a");
  room.refusal(k_root + entry('x', "pax", "29 size=99999999999999999999\n") + huge + k_end);
}

TEST_CASE("one file gets the name that was asked for, whatever it is called in the archive") {
  const Room room;
  room.take(entry('0', "./.ssh", "bytes", "", 04755) + k_end, "model");
  CHECK(test::read_text(room.here + "/model") == "bytes");
  struct stat status {};
  REQUIRE(stat((room.here + "/model").c_str(), &status) == 0);
  CHECK((status.st_mode & 07000) == 0);
}

TEST_CASE("what is there is replaced file by file, and never a folder by a file") {
  const Room room;
  fs::create_directories(room.here + "/got/a");
  room.folder.write("here/got/a/mine", "kept");
  room.folder.write("here/got/b", "old");
  fs::create_symlink(room.folder / "outside", room.here + "/got/link");
  room.take(k_root + entry('0', "./a/new", "new") + entry('0', "./b", "new") +
            entry('0', "./link", "new") + k_end);
  CHECK(test::read_text(room.here + "/got/a/mine") == "kept");
  CHECK(test::read_text(room.here + "/got/a/new") == "new");
  CHECK(test::read_text(room.here + "/got/b") == "new");
  CHECK(test::read_text(room.here + "/got/link") == "new");
  CHECK(test::read_text(room.folder / "outside") == "safe"); // The link was replaced.
  CHECK_THROWS_AS(
      room.take(k_root + entry('0', "./b", "other") + entry('0', "./a", "evil") + k_end),
      UsageError);
  CHECK(test::read_text(room.here + "/got/b") == "new");
}

TEST_CASE("what a login prints before the archive is no part of it") {
  const std::string banner = "Welcome!\ndtrain-archive is not here\n";
  const std::string sent = banner + "\ndtrain-archive\n\n\ndtrain-archive\nbytes";
  for (std::size_t step = 1; step <= sent.size(); ++step) {
    std::string got;
    const ByteSink sink = [&](std::string_view bytes) { got += bytes; };
    PackedFiles files(sink);
    for (std::size_t at = 0; at < sent.size(); at += step) {
      files.add(std::string_view(sent).substr(at, step));
    }
    CHECK(got == "\n\ndtrain-archive\nbytes");
  }
}
