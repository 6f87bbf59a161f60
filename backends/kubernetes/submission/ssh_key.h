// Ed25519 keys in OpenSSH's form, made for one job and kept nowhere but in its Secret.
//
// libcrypto makes them. It is opened at run time, as libcurl is, which needs it: few submissions
// do.
#pragma once

#include <string>
#include <string_view>

namespace dtrain::kubernetes {

struct SshKey {
  std::string private_text; ///< PEM-like, with its final newline; no passphrase.
  std::string public_text;  ///< "ssh-ed25519 AAAA…", one line without a newline.
};

/// A new key. Throws EngineError where libcrypto is missing or has no random numbers.
SshKey make_ssh_key();

/// The key of 32 bytes `seed` and its public half, in the forms of OpenSSH's PROTOCOL.key.
SshKey ssh_key_of(std::string_view seed, std::string_view public_half);

} // namespace dtrain::kubernetes
