#include "backends/local/shares.h"

#include <doctest/doctest.h>

using namespace dtrain;

TEST_CASE("a share is found where it, or what it is a folder of, is mounted") {
  constexpr const char* k_mounts = "/dev/sda1 / ext4 rw 0 0\n"
                                   "nas:/export /mnt/nas nfs4 rw 0 0\n"
                                   "nas:/export/deep/er /mnt/my\\040data nfs4 ro 0 0\n"
                                   "other:/ /mnt/all nfs rw 0 0\n"
                                   "broken\n";
  CHECK(find_share("nas:/export", k_mounts) == "/mnt/nas");
  CHECK(find_share("nas:/export/", k_mounts) == "/mnt/nas");
  CHECK(find_share("nas:/export/a b", k_mounts) == "/mnt/nas/a b");
  CHECK(find_share("nas:/export/deep/er/x", k_mounts) == "/mnt/my data/x");
  CHECK(find_share("nas:/exports", k_mounts).empty());
  CHECK(find_share("other:/x/y", k_mounts) == "/mnt/all/x/y");
  CHECK(find_share("third:/x", k_mounts).empty());
  CHECK(find_share("nas:/export", "").empty());
}
