#include "trainer/options/config_file.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "submit/errors.h"
#include "submit/options/nearest.h"
#include "trainer/errors.h"
#include "trainer/json_file.h"
#include "trainer/options/deepspeed_keys.h"

namespace trainer {

namespace {

bool is_without_effect(std::string_view key) {
  const auto& all = keys_without_effect();
  return std::any_of(all.begin(), all.end(), [&](std::string_view known) {
    return key == known || (known.ends_with('.') && key.starts_with(known));
  });
}

/// Of a byte of a text, the first being 1.
std::string place_of(std::string_view text, std::size_t byte) {
  const std::string_view before = text.substr(0, std::max<std::size_t>(byte, 1) - 1);
  const std::string_view line = before.substr(before.rfind('\n') + 1);
  const auto characters = std::count_if(
      line.begin(), line.end(), [](char c) { return (static_cast<unsigned char>(c) >> 6U) != 2; });
  return fmt::format("line {}, column {}", std::count(before.begin(), before.end(), '\n') + 1,
                     characters + 1);
}

} // namespace

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c; });
  return text;
}

ConfigFile::ConfigFile(const std::string& path) : name_(dtrain::printable(path)) {
  std::ifstream file(path, std::ios::binary);
  const int cause = file ? EISDIR : errno; // A folder can be opened.
  std::error_code ignored;
  if (!file || std::filesystem::is_directory(path, ignored)) {
    throw UsageError(fmt::format("--config={}: cannot read it: {}", name_, std::strerror(cause)));
  }
  std::vector<std::set<std::string>> keys; // Of the objects that are open.
  const auto check = [&](int depth, Json::parse_event_t event, Json& value) {
    if (static_cast<std::size_t>(depth) > k_deepest_json) {
      throw UsageError(fmt::format("{}: is nested more than {} deep", name_, k_deepest_json));
    }
    if (event == Json::parse_event_t::object_start) {
      keys.emplace_back();
    } else if (event == Json::parse_event_t::object_end) {
      keys.pop_back();
    } else if (event == Json::parse_event_t::key &&
               !keys.back().insert(value.get<std::string>()).second) {
      throw UsageError(fmt::format("{}: has the key \"{}\" twice", name_,
                                   dtrain::printable(value.get<std::string>())));
    }
    return true;
  };
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  try {
    flatten("", Json::parse(text, check));
  } catch (const Json::parse_error& error) {
    throw UsageError(
        fmt::format("{}: is not JSON: error at {}", name_, place_of(text, error.byte)));
  }
}

bool ConfigFile::has(const std::string& key) const {
  const auto found = values_.find(key);
  return found != values_.end() && !found->second.is_null();
}

void ConfigFile::flatten(const std::string& path, const Json& value) {
  if (!value.is_object() && path.empty()) {
    throw UsageError(fmt::format("{}: is not a JSON object", name_));
  }
  if (!value.is_object() || (value.empty() && !path.empty())) { // Of {} the name may be wrong.
    values_.emplace(path, value);
    return;
  }
  for (const auto& [key, inner] : value.items()) {
    if (key.empty()) {
      throw UsageError(fmt::format("{}: has an empty key", name_));
    }
    if (key.find('.') != std::string::npos && !is_without_effect(path + ".")) {
      refuse_dots(path, key, inner);
    }
    flatten(path.empty() ? key : fmt::format("{}.{}", path, key), inner);
  }
}

void ConfigFile::refuse(const std::string& key, const std::string& wanted) const {
  const Json& value = values_.at(key);
  if (value == "auto") {
    refuse_autos();
  }
  throw UsageError(fmt::format("{}: {} is {}; it must be {}", name_, key,
                               dtrain::printable(value.dump()), wanted));
}

/// All at once: there are about a dozen in a file of Hugging Face's.
void ConfigFile::refuse_autos() const {
  std::vector<std::string> keys;
  for (const auto& entry : values_) {
    if (entry.second == "auto" && !is_without_effect(entry.first)) {
      keys.push_back(dtrain::printable(entry.first));
    }
  }
  throw UsageError(fmt::format("{}: \"auto\" is filled in only by Hugging Face's Trainer; give a "
                               "value for, or remove: {}",
                               name_, fmt::join(keys, ", ")));
}

void ConfigFile::refuse_dots(const std::string& path, const std::string& key,
                             const Json& value) const {
  std::string meant = "{\"";
  for (const char c : key) {
    meant += c == '.' ? "\":{\"" : std::string(1, c);
  }
  meant += fmt::format("\":{}", value.dump());
  meant.append(std::count(key.begin(), key.end(), '.') + 1, '}');
  throw UsageError(dtrain::printable(fmt::format("{}: {}\"{}\" is one key; did you mean {}?", name_,
                                                 path.empty() ? "" : path + ": ", key, meant)));
}

void ConfigFile::note_unless_enabled(const std::string& section) {
  if (has(section + "enabled")) {
    return;
  }
  for (const std::string& key : known_) {
    if (key.starts_with(section) && has(key)) {
      note_without_effect(key);
    }
  }
}

const ConfigFile::Json* ConfigFile::take(const std::string& key) {
  known_.push_back(key);
  const auto found = values_.find(key);
  if (found == values_.end() || found->second.is_null()) {
    return nullptr;
  }
  return &found->second;
}

bool ConfigFile::take(const std::string& key, double& to, double least) {
  const Json* value = take(key);
  if (value != nullptr) {
    if (!value->is_number() || !std::isfinite(value->get<double>()) ||
        value->get<double>() < least) {
      refuse(key, fmt::format("a number of {:g} or more", least));
    }
    to = value->get<double>();
  }
  return value != nullptr;
}

bool ConfigFile::take(const std::string& key, std::int64_t& to) {
  const Json* value = take(key);
  if (value != nullptr) {
    if (!value->is_number_unsigned() || value->get<std::uint64_t>() < 1 ||
        value->get<std::uint64_t>() > 1U << 30U) {
      refuse(key, "a whole number of 1 or more");
    }
    to = value->get<std::int64_t>();
  }
  return value != nullptr;
}

bool ConfigFile::take(const std::string& key, bool& to) {
  const Json* value = take(key);
  if (value != nullptr) {
    if (!value->is_boolean()) {
      refuse(key, "true or false");
    }
    to = value->get<bool>();
  }
  return value != nullptr;
}

bool ConfigFile::take(const std::string& key, std::string& to,
                      const std::vector<std::string>& names) {
  const Json* value = take(key);
  if (value == nullptr) {
    return false;
  }
  const auto found = std::find_if(names.begin(), names.end(), [&](const std::string& name) {
    return value->is_string() && lower(name) == lower(value->get<std::string>());
  });
  if (found == names.end()) {
    refuse(key, fmt::format("one of {}", fmt::join(names, ", ")));
  }
  to = *found;
  return true;
}

/// Whether a key asks for what the trainer does anyway.
bool ConfigFile::is_off(const std::string& key, const Json& value) const {
  const std::string section = key.substr(0, key.rfind('.'));
  const auto enabled = values_.find(section + ".enabled");
  const auto device = values_.find(section + ".device");
  const auto& trues = keys_true_by_default();
  const bool is_true = std::find(trues.begin(), trues.end(), key) != trues.end();
  return value.is_null() || value == is_true ||
         (enabled != values_.end() && enabled->first != key && enabled->second == false) ||
         (device != values_.end() && device->second == "none");
}

/// Whether DeepSpeed knows keys within it.
bool ConfigFile::is_section(const std::string& key) const {
  const auto is_within = [&](std::string_view known) {
    return known.size() > key.size() && known.starts_with(key) && known[key.size()] == '.';
  };
  const auto& others = keys_without_effect();
  return std::any_of(known_.begin(), known_.end(), is_within) ||
         std::any_of(others.begin(), others.end(), is_within);
}

std::vector<std::string> ConfigFile::check_all_known() {
  for (const auto& entry : values_) {
    const std::string& key = entry.first;
    if (std::find(known_.begin(), known_.end(), key) != known_.end()) {
      continue;
    }
    if (is_section(key)) {
      if (!entry.second.is_object() && !entry.second.is_null()) {
        refuse(key, "an object");
      }
      continue;
    }
    if (!is_without_effect(key)) {
      refuse_key(key);
    }
    if (!is_off(key, entry.second)) {
      without_effect_.insert(key);
    }
  }
  return {without_effect_.begin(), without_effect_.end()};
}

void ConfigFile::refuse_key(const std::string& key) const {
  std::vector<std::string> all = known_;
  for (const std::string_view known : keys_without_effect()) {
    all.emplace_back(known.substr(0, known.size() - (known.ends_with('.') ? 1 : 0)));
  }
  // The first part that is wrong: of zero_optimisation.stage the section.
  std::string wrong = key;
  for (std::size_t dot = key.find('.'); dot != std::string::npos; dot = key.find('.', dot + 1)) {
    const std::string section = key.substr(0, dot + 1);
    if (std::none_of(all.begin(), all.end(),
                     [&](const std::string& one) { return one.starts_with(section); })) {
      wrong = key.substr(0, dot);
      break;
    }
  }
  const auto depth = std::count(wrong.begin(), wrong.end(), '.') + 1;
  std::vector<std::string> candidates;
  for (const std::string& one : all) { // As many parts as the wrong one has.
    std::size_t end = 0;
    for (auto part = 0; part < depth && end != std::string::npos; ++part) {
      end = one.find('.', end == 0 ? 0 : end + 1);
    }
    candidates.push_back(one.substr(0, end));
  }
  const auto near = dtrain::nearest(wrong, candidates);
  throw UsageError(fmt::format("{}: DeepSpeed has no key {}{}", name_, dtrain::printable(wrong),
                               near ? fmt::format("; did you mean {}?", *near) : ""));
}

} // namespace trainer
