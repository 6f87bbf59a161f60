// DeepSpeed's configuration file as keys with values: each is taken by its type, and what nobody
// has taken is refused, or named as without effect.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace trainer {

/// Keys are by their path, "zero_optimization.stage". Throws UsageError naming the file and the
/// key.
class ConfigFile {
 public:
  using Json = nlohmann::json;

  explicit ConfigFile(const std::string& path);

  /// As messages have it.
  const std::string& name() const { return name_; }
  /// Null is as left out.
  bool has(const std::string& key) const;

  /// The value of a key, which is known from now on; null: it is not given.
  const Json* take(const std::string& key);
  /// Each sets `to` where the key is given, and says whether it is.
  bool take(const std::string& key, double& to, double least = 0);
  bool take(const std::string& key, std::int64_t& to);
  bool take(const std::string& key, bool& to);
  /// One of some names, whatever case its letters have.
  bool take(const std::string& key, std::string& to, const std::vector<std::string>& names);

  /// For a key that is given.
  [[noreturn]] void refuse(const std::string& key, const std::string& wanted) const;
  /// That was taken, and changes nothing here.
  void note_without_effect(const std::string& key) { without_effect_.insert(key); }
  /// All that were taken of a section, "fp16.", whose `enabled` is left out.
  void note_unless_enabled(const std::string& section);
  /// Refuses what DeepSpeed does not know. Gives what has no effect here, of all that is given.
  std::vector<std::string> check_all_known();

 private:
  void flatten(const std::string& path, const Json& value);
  bool is_section(const std::string& key) const;
  bool is_off(const std::string& key, const Json& value) const;
  [[noreturn]] void refuse_key(const std::string& key) const;
  [[noreturn]] void refuse_dots(const std::string& path, const std::string& key,
                                const Json& value) const;
  [[noreturn]] void refuse_autos() const;

  std::string name_;
  std::map<std::string, Json> values_;
  std::vector<std::string> known_;
  std::set<std::string> without_effect_;
};

/// Its letters from A to Z as small ones.
std::string lower(std::string text);

} // namespace trainer
