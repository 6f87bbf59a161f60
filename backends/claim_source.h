// Data that an engine has by name: what --data=NAME:/path mounts where no location has that name.
#pragma once

#include <string>
#include <vector>

namespace dtrain {

struct Claim {
  std::string namespace_name;
  std::string name;
  std::string status;                    ///< "Bound", "Pending"
  std::string size;                      ///< "10Gi"; empty: not known.
  std::vector<std::string> access_modes; ///< "ReadWriteMany"
};

/// What a Backend is besides, where its engine has claims.
class ClaimSource {
 public:
  virtual ~ClaimSource() = default;

  /// Of one namespace, or of all where it is empty; by namespace and name. Throws EngineError.
  virtual std::vector<Claim> claims(const std::string& namespace_name) = 0;
};

} // namespace dtrain
