// A node's identity: an Ed25519 key. Its node id is the SHA-256 of the raw public key; TLS certificates are self-signed
// with it and trusted by node id alone, never by a certificate authority or a name.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "wire/messages.h"

using EVP_PKEY = struct evp_pkey_st;

namespace kvasir {

class Identity {
  public:
    static Result<Identity> generate();
    // PEM (PKCS #8), mode 0600; a file that others may read is refused, as is anything but an Ed25519 private key.
    static Result<Identity> load(const std::filesystem::path& path);
    // Loads it, or generates and saves it (atomically, 0600) where there is no file.
    static Result<Identity> load_or_create(const std::filesystem::path& path);
    Status save(const std::filesystem::path& path) const;

    const NodeId& id() const { return id_; }
    EVP_PKEY* key() const { return key_.get(); }

  private:
    // Takes ownership of `key`.
    static Result<Identity> from_key(EVP_PKEY* key);

    std::shared_ptr<EVP_PKEY> key_;
    NodeId id_{};
};

// identity.pem in config_directory() (base/user_directories.h).
std::filesystem::path default_identity_path();

}  // namespace kvasir
