#include "backends/engine.h"
#include "submit/fields/job_fields.h"

#include <doctest/doctest.h>

#include <set>
#include <string_view>

using namespace dtrain;

TEST_CASE("every engine says of every field what it does with it") {
  for (const Engine* engine : engines()) {
    CAPTURE(engine->name);
    std::set<std::string_view> said;
    for (const FieldUse& field : engine->fields) {
      said.insert(field.key);
    }
    for (const JobField& field : job_fields()) {
      CAPTURE(field.key);
      CHECK((said.contains(field.key) || field.key == "backend" || field.key == "engineOptions"));
    }
  }
}
