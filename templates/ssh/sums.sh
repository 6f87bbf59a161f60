# What a host has by digest in its cache may be damaged there: it is compared with what came.
sums_of() { find "$1" -type f -exec cksum {} + | LC_ALL=C sort; }
