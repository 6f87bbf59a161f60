#include "submit/text/quantity.h"

#include <doctest/doctest.h>

using namespace dtrain;

TEST_CASE("quantities are read as the API writes them") {
  CHECK(quantity_of("250m") == doctest::Approx(0.25));
  CHECK(quantity_of("1250000000n") == doctest::Approx(1.25));
  CHECK(quantity_of("64Ki") == doctest::Approx(65536));
  CHECK(quantity_of("1.5G") == doctest::Approx(1.5e9));
  CHECK(quantity_of("2e3") == doctest::Approx(2000));
  CHECK(quantity_of("7") == doctest::Approx(7));
  for (const char* bad : {"", "Ki", "1Kib", "x1", "1 ", "inf", "nan"}) {
    CHECK_FALSE(quantity_of(bad).has_value());
  }
}

TEST_CASE("an amount that a person may ask for is positive, in plain digits and known units") {
  for (const char* good : {"1", "500m", "0.5", "16Gi", "1.5G", "9u", "10Ki", "2k", "3M", "4T", "5P",
                           "6E", "1Ti", "1Pi", "1Ei", "0.001", "100Mi"}) {
    CAPTURE(good);
    CHECK(is_quantity(good));
  }
  for (const char* bad : {"", "0", "0.0", ".5", "5.", "1.2.3", "-1", "+1", "1e3", "10Gigs", "Gi",
                          "m", " 1", "1 ", "1K", "1g", "1gi", "1n", "0x10"}) {
    CAPTURE(bad);
    CHECK_FALSE(is_quantity(bad));
  }
}
