#include "net/tls.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "net/public_key.h"

namespace kvasir {
namespace {

constexpr std::size_t kRecordBytes = 16384;          // the most that one TLS record carries
constexpr std::size_t kReadBufferBytes = 64 << 10;   // what one system call may take in: several records
constexpr std::size_t kWriteBufferBytes = 48 << 10;  // records gathered for one system call
constexpr long kCertificateLimit = 8 << 10;          // bytes of a peer's certificate chain

struct Free {
    void operator()(X509* certificate) const { X509_free(certificate); }
    void operator()(SSL* ssl) const { SSL_free(ssl); }
    void operator()(BIO_METHOD* method) const { BIO_meth_free(method); }
};

// The socket below TLS, as OpenSSL sees it. Writes always succeed: they go to a buffer, which is sent when it is full
// or when a message is complete. One system call for several records costs less than one for each, and a write that
// never has to be repeated keeps OpenSSL's retry rules out of the rest. (OpenSSL's own socket BIO would raise SIGPIPE.)
class SocketBuffer {
  public:
    explicit SocketBuffer(int socket) : socket_(socket) {}

    // As recv(2).
    ssize_t receive(void* data, std::size_t size) {
        ssize_t count = ::recv(socket_, data, size, 0);
        if (count < 0 && !must_wait()) error_ = errno;
        return count;
    }

    void append(const char* data, std::size_t size) {
        ByteSpan bytes = std::as_bytes(std::span(data, size));
        unsent_.insert(unsent_.end(), bytes.begin(), bytes.end());
    }

    // done, want_write or failed.
    IoState send() {
        while (sent_ < unsent_.size()) {
            ssize_t count = ::send(socket_, unsent_.data() + sent_, unsent_.size() - sent_, MSG_NOSIGNAL);
            if (count < 0 && must_wait()) return IoState::want_write;
            if (count < 0) {
                error_ = errno;
                return IoState::failed;
            }
            sent_ += static_cast<std::size_t>(count);
        }
        unsent_.clear();
        sent_ = 0;
        return IoState::done;
    }

    static bool must_wait() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }
    std::size_t size() const { return unsent_.size(); }
    int error() const { return error_; }

  private:
    int socket_;
    ByteVector unsent_;
    std::size_t sent_ = 0;
    int error_ = 0;  // errno of the last failure
};

int bio_read(BIO* bio, char* data, int size) {
    BIO_clear_retry_flags(bio);
    auto& buffer = *static_cast<SocketBuffer*>(BIO_get_data(bio));
    ssize_t count = buffer.receive(data, static_cast<std::size_t>(size));
    if (count < 0 && SocketBuffer::must_wait()) BIO_set_retry_read(bio);
    return static_cast<int>(count);
}

int bio_write(BIO* bio, const char* data, int size) {
    static_cast<SocketBuffer*>(BIO_get_data(bio))->append(data, static_cast<std::size_t>(size));
    return size;
}

long bio_control(BIO* /*bio*/, int command, long /*number*/, void* /*pointer*/) {
    return command == BIO_CTRL_FLUSH ? 1 : 0;
}

const BIO_METHOD* socket_method() {
    static const std::unique_ptr<BIO_METHOD, Free> method = [] {
        std::unique_ptr<BIO_METHOD, Free> made(BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "socket"));
        BIO_meth_set_read(made.get(), bio_read);
        BIO_meth_set_write(made.get(), bio_write);
        BIO_meth_set_ctrl(made.get(), bio_control);
        return made;
    }();
    return method.get();
}

// What a verification failure tells the peer: OpenSSL derives the TLS alert from it.
constexpr int kAlertBadCertificate = X509_V_ERR_CERT_REJECTED;
constexpr int kAlertUnknownAuthority = X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT;

// Judges the id of a peer that has shown its certificate. (That it holds the key is proven later in the handshake.)
struct Verdict {
    Status status;
    int failure = X509_V_OK;
};
using PeerCheck = std::function<Verdict(const NodeId&)>;

class TlsChannel final : public Channel {
  public:
    TlsChannel(std::unique_ptr<SSL, Free> ssl, int socket, NodeId own, PeerCheck check)
        : buffer_(socket), ssl_(std::move(ssl)), own_(own), check_(std::move(check)) {
        SSL_set_app_data(ssl_.get(), this);
    }

    bool attach() {
        BIO* bio = BIO_new(socket_method());
        if (bio == nullptr) return false;
        BIO_set_data(bio, &buffer_);
        BIO_set_init(bio, 1);
        SSL_set_bio(ssl_.get(), bio, bio);  // takes ownership
        return true;
    }

    IoState handshake() override {
        ERR_clear_error();
        int outcome = SSL_do_handshake(ssl_.get());
        IoState state = outcome == 1 ? IoState::done : classify(outcome);
        IoState sent = flush();  // also the alert that says why it failed
        if (state == IoState::failed || state == IoState::closed) return state;
        if (sent != IoState::done) return sent;
        if (state == IoState::done) check_ = nullptr;  // it may own what owns this connection
        return state;
    }

    IoResult read(std::span<std::byte> into) override {
        ERR_clear_error();
        std::size_t count = 0;
        int outcome = SSL_read_ex(ssl_.get(), into.data(), into.size(), &count);
        if (outcome == 1) return {IoState::done, count};
        IoState state = classify(outcome);
        if (state == IoState::failed) buffer_.send();  // an alert, as far as it goes
        return {state, 0};
    }

    IoResult write(ByteSpan head, ByteSpan body) override {
        if (buffer_.size() >= kWriteBufferBytes) {
            if (IoState state = flush(); state != IoState::done) return {state, 0};
        }
        // The head shares a record with the beginning of the body.
        ByteSpan chunk = body;
        if (!head.empty()) {
            std::size_t from_body = std::min(body.size(), gathered_.size() - head.size());
            std::copy(head.begin(), head.end(), gathered_.begin());
            std::copy_n(body.begin(), from_body, gathered_.begin() + static_cast<std::ptrdiff_t>(head.size()));
            chunk = ByteSpan(gathered_).first(head.size() + from_body);
        }
        ERR_clear_error();
        std::size_t count = 0;
        int outcome = SSL_write_ex(ssl_.get(), chunk.data(), chunk.size(), &count);
        if (outcome != 1) return {classify(outcome), 0};
        return {IoState::done, count};
    }

    IoState flush() override {
        IoState state = buffer_.send();
        if (state == IoState::failed) error_ = socket_error();
        return state;
    }

    void finish() override {
        ERR_clear_error();
        SSL_shutdown(ssl_.get());
        buffer_.send();
    }

    std::optional<NodeId> peer() const override { return peer_; }
    bool secure() const override { return true; }

    static int verify(X509_STORE_CTX* store, void* /*data*/) {
        auto* ssl = static_cast<SSL*>(X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx()));
        auto* channel = static_cast<TlsChannel*>(SSL_get_app_data(ssl));
        int failure = channel->judge(X509_STORE_CTX_get0_cert(store));
        X509_STORE_CTX_set_error(store, failure);
        return failure == X509_V_OK ? 1 : 0;
    }

  private:
    int judge(X509* certificate) {
        Result<NodeId> id = public_key_id(X509_get0_pubkey(certificate));
        if (!id) {
            refusal_ = Error{ErrorKind::invalid, "the peer's certificate does not hold an Ed25519 key"};
            return kAlertBadCertificate;
        }
        Verdict verdict = check_(*id);
        if (!verdict.status) {
            refusal_ = verdict.status.error();
            return verdict.failure;
        }
        peer_ = *id;
        return X509_V_OK;
    }

    // Turns OpenSSL's account of a call that did not succeed into a state, and into error_ where it is final.
    IoState classify(int outcome) {
        bool in_handshake = !SSL_is_init_finished(ssl_.get());
        switch (SSL_get_error(ssl_.get(), outcome)) {
            case SSL_ERROR_WANT_READ:
                return IoState::want_read;
            case SSL_ERROR_WANT_WRITE:
                return IoState::want_write;
            case SSL_ERROR_ZERO_RETURN:
                error_ = closed_by_peer();
                return IoState::closed;
            case SSL_ERROR_SYSCALL:
                error_ = buffer_.error() != 0 ? socket_error() : ended(in_handshake);
                return buffer_.error() != 0 ? IoState::failed : IoState::closed;
            default:
                error_ = protocol_error();
                return IoState::failed;
        }
    }

    Error socket_error() const {
        return {ErrorKind::unavailable, fmt::format("the connection broke: {}", std::strerror(buffer_.error()))};
    }

    static Error ended(bool in_handshake) {
        if (!in_handshake) return closed_by_peer();
        return {ErrorKind::unavailable, "the peer closed the connection in the TLS handshake; does it use TLS at all?"};
    }

    Error protocol_error() const {
        if (refusal_) return *refusal_;
        unsigned long code = ERR_peek_error();
        switch (ERR_GET_REASON(code)) {
            case SSL_R_TLSV1_ALERT_UNKNOWN_CA:
                return {ErrorKind::usage,
                        fmt::format("the worker does not admit this node's id {}; add it there with --admit",
                                    to_hex(own_))};
            case SSL_R_SSLV3_ALERT_BAD_CERTIFICATE:
                return {ErrorKind::mismatch,
                        fmt::format("the peer expected another node id than this node's {}", to_hex(own_))};
            case SSL_R_WRONG_VERSION_NUMBER:
            case SSL_R_HTTP_REQUEST:
            case SSL_R_PACKET_LENGTH_TOO_LONG:
                return {ErrorKind::invalid, "the peer does not speak TLS; does it run with --insecure-loopback?"};
            default: {
                const char* reason = ERR_reason_error_string(code);
                return {ErrorKind::invalid, fmt::format("TLS: {}", reason != nullptr ? reason : "unknown error")};
            }
        }
    }

    SocketBuffer buffer_;
    std::unique_ptr<SSL, Free> ssl_;
    NodeId own_;
    PeerCheck check_;
    std::optional<NodeId> peer_;
    std::optional<Error> refusal_;
    std::array<std::byte, kRecordBytes> gathered_;
};

// Valid for ever: trust rests on the key, and nodes without a clock must work too.
std::unique_ptr<X509, Free> make_certificate(EVP_PKEY* key) {
    std::unique_ptr<X509, Free> certificate(X509_new());
    if (!certificate) return nullptr;
    X509* raw = certificate.get();
    X509_NAME* name = X509_get_subject_name(raw);
    constexpr std::array<unsigned char, 11> kName = {'k', 'v', 'a', 's', 'i', 'r', ' ', 'n', 'o', 'd', 'e'};
    bool ok = X509_set_version(raw, X509_VERSION_3) == 1 && ASN1_INTEGER_set(X509_get_serialNumber(raw), 1) == 1 &&
              ASN1_TIME_set_string(X509_getm_notBefore(raw), "19700101000000Z") == 1 &&
              ASN1_TIME_set_string(X509_getm_notAfter(raw), "99991231235959Z") == 1 &&
              X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, kName.data(), kName.size(), -1, 0) == 1 &&
              X509_set_issuer_name(raw, name) == 1 && X509_set_pubkey(raw, key) == 1 &&
              X509_sign(raw, key, nullptr) > 0;
    return ok ? std::move(certificate) : nullptr;
}

bool configure(SSL_CTX* context, X509* certificate, EVP_PKEY* key) {
    SSL_CTX_set_options(
        context, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_CIPHER_SERVER_PREFERENCE);
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_read_ahead(context, 1);
    SSL_CTX_set_default_read_buffer_len(context, kReadBufferBytes);
    SSL_CTX_set_max_cert_list(context, kCertificateLimit);
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
    SSL_CTX_set_cert_verify_callback(context, TlsChannel::verify, nullptr);
    constexpr const char* kCiphers = "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256:TLS_AES_256_GCM_SHA384";
    return SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) == 1 &&
           SSL_CTX_set_max_proto_version(context, TLS1_3_VERSION) == 1 && SSL_CTX_set_num_tickets(context, 0) == 1 &&
           SSL_CTX_set_ciphersuites(context, kCiphers) == 1 && SSL_CTX_set1_sigalgs_list(context, "ed25519") == 1 &&
           SSL_CTX_use_certificate(context, certificate) == 1 && SSL_CTX_use_PrivateKey(context, key) == 1;
}

Result<std::unique_ptr<Channel>> make_channel(SSL_CTX* context, int socket, const NodeId& own, PeerCheck check,
                                              bool connecting) {
    std::unique_ptr<SSL, Free> ssl(SSL_new(context));
    if (!ssl) return fail(ErrorKind::internal, "OpenSSL cannot make a connection object");
    if (connecting) {
        SSL_set_connect_state(ssl.get());
    } else {
        SSL_set_accept_state(ssl.get());
    }
    auto channel = std::make_unique<TlsChannel>(std::move(ssl), socket, own, std::move(check));
    if (!channel->attach()) return fail(ErrorKind::internal, "OpenSSL cannot attach a socket");
    return channel;
}

}  // namespace

Result<TlsContext> TlsContext::create(const Identity& identity) {
    TlsContext made;
    made.id_ = identity.id();
    made.context_ = std::shared_ptr<SSL_CTX>(SSL_CTX_new(TLS_method()), SSL_CTX_free);
    std::unique_ptr<X509, Free> certificate = make_certificate(identity.key());
    if (!made.context_ || !certificate || !configure(made.context_.get(), certificate.get(), identity.key())) {
        const char* reason = ERR_reason_error_string(ERR_peek_error());
        ERR_clear_error();
        return fail(ErrorKind::internal, "OpenSSL cannot set up TLS 1.3 with Ed25519: {}",
                    reason != nullptr ? reason : "no reason given");
    }
    return made;
}

Result<std::unique_ptr<Channel>> TlsContext::connecting(int socket, const NodeId& expected) const {
    auto check = [expected](const NodeId& actual) -> Verdict {
        if (actual == expected) return {};
        return {
            fail(ErrorKind::mismatch, "the node there has the id {}, expected {}", to_hex(actual), to_hex(expected)),
            kAlertBadCertificate};
    };
    return make_channel(context_.get(), socket, id_, check, true);
}

Result<std::unique_ptr<Channel>> TlsContext::accepting(int socket, std::function<bool(const NodeId&)> admit) const {
    auto check = [admit = std::move(admit)](const NodeId& actual) -> Verdict {
        if (admit && admit(actual)) return {};
        return {fail(ErrorKind::usage, "the id {} is not admitted", to_hex(actual)), kAlertUnknownAuthority};
    };
    return make_channel(context_.get(), socket, id_, check, false);
}

}  // namespace kvasir
