#include "net/identity.h"

#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "base/files.h"
#include "base/user_directories.h"
#include "net/public_key.h"

namespace kvasir {
namespace {

constexpr std::uint64_t kKeyFileLimit = 16 << 10;

using BioPtr = std::unique_ptr<BIO, decltype(&BIO_free)>;

// OpenSSL would ask for the password of an encrypted key on the terminal.
int no_password(char* /*buffer*/, int /*size*/, int /*writing*/, void* /*data*/) {
    return -1;
}

// Only the owner may read or write it.
Status check_private(const std::filesystem::path& path, int descriptor) {
    struct stat status {};
    if (::fstat(descriptor, &status) != 0) {
        return fail(ErrorKind::io, "{}: cannot examine: {}", path.string(), std::strerror(errno));
    }
    if ((status.st_mode & 077) != 0) {
        return fail(ErrorKind::usage, "{}: others may read or change this key (mode {:04o}): chmod 600 it",
                    path.string(), status.st_mode & 07777);
    }
    return {};
}

Result<std::string> read_key_file(const std::filesystem::path& path) {
    Result<File> file = File::open(path);
    if (!file) return fail(file.error());
    if (Status ok = check_private(path, file->descriptor()); !ok) return fail(ok.error());
    Result<std::uint64_t> size = file->size();
    if (!size) return fail(size.error().within(path.string()));
    if (*size > kKeyFileLimit) {
        return fail(ErrorKind::invalid, "{}: {} bytes are too many for an identity", path.string(), *size);
    }
    std::string text(*size, '\0');
    Status read = file->read_at(0, std::as_writable_bytes(std::span(text)));
    if (!read) return fail(read.error().within(path.string()));
    return text;
}

Result<std::string> to_pem(EVP_PKEY* key) {
    BioPtr bio(BIO_new(BIO_s_mem()), BIO_free);
    if (!bio || PEM_write_bio_PKCS8PrivateKey(bio.get(), key, nullptr, nullptr, 0, nullptr, nullptr) != 1) {
        return fail(ErrorKind::internal, "cannot encode an Ed25519 key");
    }
    char* data = nullptr;
    long size = BIO_get_mem_data(bio.get(), &data);
    return std::string(data, static_cast<std::size_t>(size));
}

// A complete key file beside `path`, synced, readable by its owner alone; the caller gives it its name.
Result<AtomicFile> write_beside(const std::filesystem::path& path, std::string_view pem) {
    std::error_code failed;
    if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path(), failed);
    if (failed) {
        return fail(ErrorKind::io, "cannot make the directory {}: {}", path.parent_path().string(), failed.message());
    }
    Result<AtomicFile> file = AtomicFile::create(path);
    if (!file) return file;
    if (::fchmod(file->descriptor(), 0600) != 0) {
        return fail(ErrorKind::io, "{}: cannot make it private: {}", path.string(), std::strerror(errno));
    }
    if (Status written = file->append(std::as_bytes(std::span(pem))); !written) return fail(written.error());
    return file;
}

}  // namespace

Result<NodeId> public_key_id(EVP_PKEY* key) {
    std::array<unsigned char, 32> raw{};
    std::size_t size = raw.size();
    if (key == nullptr || EVP_PKEY_get_id(key) != EVP_PKEY_ED25519 ||
        EVP_PKEY_get_raw_public_key(key, raw.data(), &size) != 1 || size != raw.size()) {
        ERR_clear_error();
        return fail(ErrorKind::invalid, "not an Ed25519 key");
    }
    return sha256(std::as_bytes(std::span(raw)));
}

Result<Identity> Identity::from_key(EVP_PKEY* key) {
    Identity identity;
    identity.key_ = std::shared_ptr<EVP_PKEY>(key, EVP_PKEY_free);
    Result<NodeId> id = public_key_id(key);
    if (!id) return fail(id.error());
    identity.id_ = *id;
    return identity;
}

Result<Identity> Identity::generate() {
    EVP_PKEY* key = EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519");
    if (key == nullptr) return fail(ErrorKind::internal, "OpenSSL cannot make an Ed25519 key");
    return from_key(key);
}

Result<Identity> Identity::load(const std::filesystem::path& path) {
    Result<std::string> pem = read_key_file(path);
    if (!pem) return fail(pem.error());
    BioPtr bio(BIO_new_mem_buf(pem->data(), static_cast<int>(pem->size())), BIO_free);
    EVP_PKEY* key = bio ? PEM_read_bio_PrivateKey(bio.get(), nullptr, no_password, nullptr) : nullptr;
    OPENSSL_cleanse(pem->data(), pem->size());
    ERR_clear_error();
    if (key == nullptr) {
        return fail(
            ErrorKind::invalid,
            "{}: is not a private key in PEM without a password; name a file that is not there to have one made",
            path.string());
    }
    Result<Identity> identity = from_key(key);
    if (!identity) return fail(ErrorKind::invalid, "{}: is a private key, but not an Ed25519 one", path.string());
    return identity;
}

Result<Identity> Identity::load_or_create(const std::filesystem::path& path) {
    std::error_code failed;
    if (std::filesystem::exists(path, failed) || failed) return load(path);
    Result<Identity> identity = generate();
    if (!identity) return identity;
    Result<std::string> pem = to_pem(identity->key());
    if (!pem) return fail(pem.error());
    Result<AtomicFile> file = write_beside(path, *pem);
    if (!file) return fail(file.error());
    // Of two processes that start together, the second takes the first's key.
    Result<bool> first = file->commit_new();
    if (!first) return fail(first.error());
    return *first ? identity : load(path);
}

Status Identity::save(const std::filesystem::path& path) const {
    Result<std::string> pem = to_pem(key_.get());
    if (!pem) return fail(pem.error());
    Result<AtomicFile> file = write_beside(path, *pem);
    if (!file) return fail(file.error());
    return file->commit();
}

std::filesystem::path default_identity_path() {
    return config_directory() / "identity.pem";
}

}  // namespace kvasir
