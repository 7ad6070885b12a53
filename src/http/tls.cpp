#include "http/tls.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <sys/stat.h>

#include <boost/asio/ssl/context.hpp>
#include <cerrno>
#include <cstring>

#include "base/files.h"

namespace kvasir::http {
namespace {

namespace ssl = boost::asio::ssl;

constexpr std::uint64_t kPemLimit = 1 << 20;

struct Free {
    void operator()(X509* certificate) const { X509_free(certificate); }
    void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
    void operator()(BIO* bio) const { BIO_free(bio); }
};
using CertificatePtr = std::unique_ptr<X509, Free>;
using KeyPtr = std::unique_ptr<EVP_PKEY, Free>;
using BioPtr = std::unique_ptr<BIO, Free>;

std::string openssl_reason() {
    char text[256] = "no reason given";
    if (const unsigned long code = ERR_get_error(); code != 0) ERR_error_string_n(code, text, sizeof(text));
    ERR_clear_error();
    return text;
}

// Valid from now on, so to speak for good: whoever uses it pins the key.
bool fill_certificate(X509* certificate, EVP_PKEY* key) {
    constexpr long kDay = 24L * 3600;
    X509_NAME* name = X509_get_subject_name(certificate);
    const auto* common = reinterpret_cast<const unsigned char*>("kvasir");
    return X509_set_version(certificate, X509_VERSION_3) == 1 &&
           ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1) == 1 &&
           X509_gmtime_adj(X509_getm_notBefore(certificate), -kDay) != nullptr &&
           X509_gmtime_adj(X509_getm_notAfter(certificate), 36500 * kDay) != nullptr &&
           X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, common, -1, -1, 0) == 1 &&
           X509_set_issuer_name(certificate, name) == 1 && X509_set_pubkey(certificate, key) == 1 &&
           X509_sign(certificate, key, EVP_sha256()) != 0;
}

Result<std::string> new_pem() {
    const KeyPtr key(EVP_PKEY_Q_keygen(nullptr, nullptr, "EC", "P-256"));
    const CertificatePtr certificate(X509_new());
    const BioPtr bio(BIO_new(BIO_s_mem()));
    if (!key || !certificate || !bio || !fill_certificate(certificate.get(), key.get()) ||
        PEM_write_bio_PKCS8PrivateKey(bio.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr) != 1 ||
        PEM_write_bio_X509(bio.get(), certificate.get()) != 1) {
        return fail(ErrorKind::internal, "cannot make a TLS certificate: {}", openssl_reason());
    }
    char* data = nullptr;
    const long size = BIO_get_mem_data(bio.get(), &data);
    return std::string(data, static_cast<std::size_t>(size));
}

// OpenSSL would ask for the password of an encrypted key on the terminal.
std::string no_password(std::size_t /*longest*/, ssl::context::password_purpose /*purpose*/) {
    return {};
}

}  // namespace

Status make_self_signed(const std::filesystem::path& path) {
    std::error_code ignored;
    if (std::filesystem::exists(path, ignored)) return {};
    Result<std::string> pem = new_pem();
    if (!pem) return fail(pem.error());
    Result<AtomicFile> file = AtomicFile::create(path);
    if (!file) return fail(file.error());
    if (::fchmod(file->descriptor(), 0600) != 0) {
        return fail(ErrorKind::io, "{}: cannot make it private: {}", path.string(), std::strerror(errno));
    }
    if (Status written = file->append(std::as_bytes(std::span(*pem))); !written) return written;
    // Of two that start together, the second takes the first's.
    Result<bool> made = file->commit_new();
    return made ? Status{} : fail(made.error());
}

Digest pin_of(X509* certificate) {
    unsigned char* der = nullptr;
    const int size = i2d_X509_PUBKEY(X509_get_X509_PUBKEY(certificate), &der);
    Digest pin{};
    if (size > 0) pin = sha256(std::as_bytes(std::span(der, static_cast<std::size_t>(size))));
    OPENSSL_free(der);
    return pin;
}

Result<Digest> pin_of(const std::filesystem::path& certificates) {
    Result<std::string> pem = read_text_file(certificates, kPemLimit);
    if (!pem) return fail(pem.error());
    const BioPtr bio(BIO_new_mem_buf(pem->data(), static_cast<int>(pem->size())));
    const CertificatePtr certificate(bio ? PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr) : nullptr);
    ERR_clear_error();
    if (!certificate) return fail(ErrorKind::invalid, "{}: no certificate (PEM) is in it", certificates.string());
    return pin_of(certificate.get());
}

Result<TlsContextPtr> server_context(const TlsFiles& files) {
    try {
        auto context = std::make_shared<ssl::context>(ssl::context::tls_server);
        context->set_options(ssl::context::default_workarounds | ssl::context::no_tlsv1 | ssl::context::no_tlsv1_1 |
                             SSL_OP_NO_RENEGOTIATION);
        context->set_password_callback(no_password);
        context->use_certificate_chain_file(files.certificates.string());
        context->use_private_key_file(files.key.string(), ssl::context::pem);
        return context;
    } catch (const boost::system::system_error& error) {
        return fail(ErrorKind::usage, "{} and {} are no certificate and its key (PEM, without a password): {}",
                    files.certificates.string(), files.key.string(), error.code().message());
    }
}

Result<TlsContextPtr> client_context(const Trust& trust) {
    try {
        auto context = std::make_shared<ssl::context>(ssl::context::tls_client);
        context->set_options(ssl::context::default_workarounds | ssl::context::no_tlsv1 | ssl::context::no_tlsv1_1);
        if (trust.pin) {
            context->set_verify_mode(ssl::verify_none);
            return context;
        }
        context->set_verify_mode(ssl::verify_peer);
        if (trust.ca_file.empty()) {
            context->set_default_verify_paths();
        } else {
            context->load_verify_file(trust.ca_file.string());
        }
        return context;
    } catch (const boost::system::system_error& error) {
        return fail(ErrorKind::usage, "{}: no certificates of authorities (PEM) are in it: {}", trust.ca_file.string(),
                    error.code().message());
    }
}

}  // namespace kvasir::http
