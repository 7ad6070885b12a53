// TLS for HTTP: a server's certificate, and what a client takes for proof that it talks to the right server.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "base/sha256.h"

namespace boost::asio::ssl {
class context;
}
using X509 = struct x509_st;

namespace kvasir::http {

// PEM files; both may be the same one.
struct TlsFiles {
    std::filesystem::path certificates;  // the server's own first
    std::filesystem::path key;           // without a password
};

// What a client trusts. A pin is the SHA-256 of the server's public key (DER, SubjectPublicKeyInfo): with one, neither
// authorities nor names nor dates are asked. Without, the server's name must be on a valid certificate from `ca_file`
// or, where that is empty, from one of the system's authorities.
struct Trust {
    std::filesystem::path ca_file = {};
    std::optional<Digest> pin = {};
};

// A key (P-256: browsers know it) and a certificate signed with itself in one PEM file that only its owner may read,
// made if it is not there.
Status make_self_signed(const std::filesystem::path& path);

// The pin of the first certificate of a PEM file.
Result<Digest> pin_of(const std::filesystem::path& certificates);
Digest pin_of(X509* certificate);

using TlsContextPtr = std::shared_ptr<boost::asio::ssl::context>;
// TLS 1.2 and above.
Result<TlsContextPtr> server_context(const TlsFiles& files);
Result<TlsContextPtr> client_context(const Trust& trust);

}  // namespace kvasir::http
