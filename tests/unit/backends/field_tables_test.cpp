#include "backends/engine.h"
#include "submit/fields/job_fields.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <string_view>

using namespace dtrain;

TEST_CASE("every engine says of every field that no engine brings what it does with it") {
  std::set<std::string_view> brought;
  for (const JobField& field : engine_fields()) {
    brought.insert(field.key);
  }
  for (const Engine* engine : engines()) {
    CAPTURE(engine->name);
    std::set<std::string_view> said;
    for (const FieldUse& field : engine->fields) {
      said.insert(field.key);
    }
    for (const JobField& field : job_fields()) {
      CAPTURE(field.key);
      CHECK((said.contains(field.key) || field.key == "backend" || brought.contains(field.key)));
    }
  }
}

TEST_CASE(
    "what an engine brings is kept by the key of its flag, and no key or flag means two things") {
  std::set<std::string_view> flags;
  for (const JobField& field : job_fields()) {
    CAPTURE(field.key);
    CHECK(flags.insert(field.long_flag()).second);
  }
  for (const Engine* engine : engines()) {
    for (const JobField& field : engine->own) {
      CAPTURE(field.key);
      const auto same = std::find_if(engine_fields().begin(), engine_fields().end(),
                                     [&](const JobField& each) { return each.key == field.key; });
      REQUIRE(same != engine_fields().end());
      CHECK(same->flags == field.flags);
      CHECK(same->member == field.member);
      CHECK(std::visit([](auto member) { return member.key; }, field.member) == field.key);
    }
  }
}
