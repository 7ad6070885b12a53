#include "net/identity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <sys/stat.h>

#include <thread>

#include "base/files.h"
#include "base/temp_directory.h"

namespace kvasir {
namespace {

using testing::HasSubstr;

class IdentityTest : public testing::Test {
  protected:
    std::filesystem::path path(const char* name) const { return directory_->path() / name; }
    void write(const char* name, std::string_view text, mode_t mode = 0600) {
        ASSERT_TRUE(write_text_file(path(name), text).has_value());
        ASSERT_EQ(::chmod(path(name).c_str(), mode), 0);
    }
    void expect_refused(const std::filesystem::path& file, ErrorKind kind, const char* reason) {
        Result<Identity> loaded = Identity::load_or_create(file);
        ASSERT_FALSE(loaded.has_value());
        EXPECT_EQ(loaded.error().kind, kind) << loaded.error().message;
        EXPECT_THAT(loaded.error().message, HasSubstr(reason));
        EXPECT_THAT(loaded.error().message, HasSubstr(file.string()));
    }

    Result<TempDirectory> directory_ = TempDirectory::create("kvasir-identity");
};

TEST_F(IdentityTest, IsTheSameWhenLoadedAgain) {
    Result<Identity> made = Identity::load_or_create(path("new/deep/identity.pem"));
    ASSERT_TRUE(made.has_value()) << made.error().message;
    Result<Identity> again = Identity::load_or_create(path("new/deep/identity.pem"));
    ASSERT_TRUE(again.has_value()) << again.error().message;
    EXPECT_EQ(made->id(), again->id());

    struct stat status {};
    ASSERT_EQ(::stat(path("new/deep/identity.pem").c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 07777, 0600U);
    // No temporary file stays behind.
    auto files = std::filesystem::directory_iterator(path("new/deep"));
    EXPECT_EQ(std::distance(begin(files), end(files)), 1);
}

TEST_F(IdentityTest, IdIsTheHashOfTheRawPublicKey) {
    // RFC 8032's first test key.
    Result<Digest> secret = digest_from_hex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60");
    Result<Digest> publics = digest_from_hex("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a");
    ASSERT_TRUE(secret.has_value());
    ASSERT_TRUE(publics.has_value());
    EVP_PKEY* key = EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, nullptr,
                                                 reinterpret_cast<const unsigned char*>(secret->data()), 32);
    ASSERT_NE(key, nullptr);
    FILE* file = ::fopen(path("rfc.pem").c_str(), "w");
    ASSERT_NE(file, nullptr);
    ASSERT_EQ(PEM_write_PrivateKey(file, key, nullptr, nullptr, 0, nullptr, nullptr), 1);
    ::fclose(file);
    EVP_PKEY_free(key);
    ASSERT_EQ(::chmod(path("rfc.pem").c_str(), 0600), 0);

    Result<Identity> identity = Identity::load(path("rfc.pem"));
    ASSERT_TRUE(identity.has_value()) << identity.error().message;
    EXPECT_EQ(to_hex(identity->id()), to_hex(sha256(*publics)));
}

TEST_F(IdentityTest, GeneratedOnesDiffer) {
    Result<Identity> a = Identity::generate();
    Result<Identity> b = Identity::generate();
    ASSERT_TRUE(a.has_value());
    ASSERT_TRUE(b.has_value());
    EXPECT_NE(a->id(), b->id());
}

TEST_F(IdentityTest, SaveReplaces) {
    Result<Identity> old = Identity::load_or_create(path("id.pem"));
    Result<Identity> made = Identity::generate();
    ASSERT_TRUE(old.has_value());
    ASSERT_TRUE(made.has_value());
    ASSERT_TRUE(made->save(path("id.pem")).has_value());
    Result<Identity> loaded = Identity::load(path("id.pem"));
    ASSERT_TRUE(loaded.has_value());
    EXPECT_EQ(loaded->id(), made->id());
}

TEST_F(IdentityTest, ProcessesThatStartTogetherAgree) {
    std::vector<NodeId> ids(8);
    std::vector<std::thread> threads;
    for (NodeId& id : ids) {
        threads.emplace_back([&] {
            Result<Identity> identity = Identity::load_or_create(path("shared.pem"));
            ASSERT_TRUE(identity.has_value()) << identity.error().message;
            id = identity->id();
        });
    }
    for (std::thread& thread : threads)
        thread.join();
    for (const NodeId& id : ids)
        EXPECT_EQ(id, ids[0]);
}

TEST_F(IdentityTest, RefusesWhatIsNoIdentity) {
    expect_refused(directory_->path(), ErrorKind::usage, "directory");
    write("garbage", "-----BEGIN PRIVATE KEY-----\ngarbage\n-----END PRIVATE KEY-----\n");
    expect_refused(path("garbage"), ErrorKind::invalid, "not a private key");
    write("empty", "");
    expect_refused(path("empty"), ErrorKind::invalid, "not a private key");
    write("big", std::string(100'000, 'x'));
    expect_refused(path("big"), ErrorKind::invalid, "too many");
    write("half", "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIA==\n-----END PRIVATE KEY-----\n");
    expect_refused(path("half"), ErrorKind::invalid, "not a private key");
}

TEST_F(IdentityTest, RefusesOtherKinds) {
    EVP_PKEY* key = EVP_PKEY_Q_keygen(nullptr, nullptr, "X25519");
    ASSERT_NE(key, nullptr);
    FILE* file = ::fopen(path("x25519.pem").c_str(), "w");
    ASSERT_NE(file, nullptr);
    ASSERT_EQ(PEM_write_PrivateKey(file, key, nullptr, nullptr, 0, nullptr, nullptr), 1);
    ASSERT_EQ(::fchmod(::fileno(file), 0600), 0);
    ::fclose(file);
    EVP_PKEY_free(key);
    expect_refused(path("x25519.pem"), ErrorKind::invalid, "not an Ed25519 one");
}

TEST_F(IdentityTest, RefusesKeysThatOthersMayRead) {
    ASSERT_TRUE(Identity::load_or_create(path("open.pem")).has_value());
    for (mode_t mode : {0640, 0604, 0620, 0601}) {
        ASSERT_EQ(::chmod(path("open.pem").c_str(), mode), 0);
        expect_refused(path("open.pem"), ErrorKind::usage, "chmod 600");
    }
}

TEST_F(IdentityTest, MissingFileIsNamed) {
    Result<Identity> loaded = Identity::load(path("missing.pem"));
    ASSERT_FALSE(loaded.has_value());
    EXPECT_EQ(loaded.error().kind, ErrorKind::io);
    EXPECT_THAT(loaded.error().message, HasSubstr("missing.pem"));
}

TEST(DefaultIdentityPathTest, FollowsTheEnvironment) {
    ASSERT_EQ(::setenv("KVASIR_HOME", "/somewhere", 1), 0);
    EXPECT_EQ(default_identity_path(), "/somewhere/identity.pem");
    ASSERT_EQ(::unsetenv("KVASIR_HOME"), 0);
    ASSERT_EQ(::setenv("HOME", "/home/me", 1), 0);
    ASSERT_EQ(::setenv("XDG_CONFIG_HOME", "/configured", 1), 0);
    EXPECT_EQ(default_identity_path(), "/configured/kvasir/identity.pem");
    ASSERT_EQ(::setenv("XDG_CONFIG_HOME", "relative", 1), 0);
    EXPECT_EQ(default_identity_path(), "/home/me/.config/kvasir/identity.pem");
    ASSERT_EQ(::unsetenv("XDG_CONFIG_HOME"), 0);
    EXPECT_EQ(default_identity_path(), "/home/me/.config/kvasir/identity.pem");
}

}  // namespace
}  // namespace kvasir
