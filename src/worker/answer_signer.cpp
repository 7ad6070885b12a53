#include "worker/answer_signer.h"

#include <algorithm>
#include <utility>

#include "net/signature.h"

namespace kvasir {
namespace {

// A signature costs some 30 us: at most four a second, unless so much is answered that it costs nothing beside it.
constexpr std::chrono::milliseconds kLongest{250};
constexpr std::size_t kMany = 1024;  // digests

// In parts of at most kMostAttested digests.
std::vector<AttestedAnswers> cut(std::uint64_t request, std::vector<Digest> digests) {
    std::vector<AttestedAnswers> parts;
    if (digests.size() <= kMostAttested) {
        parts.push_back({request, 0, std::move(digests)});
        return parts;
    }
    for (std::size_t first = 0; first < digests.size(); first += kMostAttested) {
        const std::span<const Digest> part =
            std::span(digests).subspan(first, std::min(kMostAttested, digests.size() - first));
        parts.push_back({request, static_cast<std::uint32_t>(first), {part.begin(), part.end()}});
    }
    return parts;
}

}  // namespace

std::vector<Digest> digest_answers(const Compute& compute, RowEncoding encoding, ByteSpan answers) {
    const std::size_t question_size = row_bytes(compute.encoding, compute.hidden);
    std::vector<Digest> questions(compute.rows.size() / question_size);
    for (std::size_t i = 0; i < questions.size(); ++i)
        questions[i] = sha256(compute.rows.subspan(i * question_size, question_size));

    AnswerTerms terms{compute.layer, 0, compute.hidden, compute.recipe, compute.encoding, encoding};
    const std::size_t answer_size = row_bytes(encoding, compute.hidden);
    std::vector<Digest> digests(compute.pairs.size());
    for (std::size_t i = 0; i < digests.size(); ++i) {
        terms.expert = compute.pairs[i].expert;
        digests[i] =
            answer_digest(terms, questions[compute.pairs[i].row], answers.subspan(i * answer_size, answer_size));
    }
    return digests;
}

AnswerSigner::AnswerSigner(std::shared_ptr<const Identity> identity, AttestationContext context)
    : identity_(std::move(identity)), context_(std::move(context)) {}

std::vector<ByteVector> AnswerSigner::add(std::uint64_t request, std::vector<Digest> digests, Clock::time_point now) {
    std::vector<AttestedAnswers> due;
    {
        std::scoped_lock lock(mutex_);
        if (gathered_.empty()) oldest_ = now;
        count_ += digests.size();
        for (AttestedAnswers& part : cut(request, std::move(digests)))
            gathered_.push_back(std::move(part));
        if (count_ < kMany && now - oldest_ < kLongest) return {};
        due = std::exchange(gathered_, {});
        count_ = 0;
    }
    return sign_all(std::move(due));
}

std::vector<ByteVector> AnswerSigner::flush() {
    std::vector<AttestedAnswers> due;
    {
        std::scoped_lock lock(mutex_);
        due = std::exchange(gathered_, {});
        count_ = 0;
    }
    return sign_all(std::move(due));
}

std::vector<ByteVector> AnswerSigner::sign_all(std::vector<AttestedAnswers> answers) const {
    std::vector<ByteVector> payloads;
    const PublicKey key = public_key(*identity_);
    for (auto first = answers.begin(); first != answers.end();) {
        std::vector<AttestedAnswers> frame;
        for (std::size_t room = kMostAttested; first != answers.end() && first->digests.size() <= room; ++first) {
            room -= first->digests.size();
            frame.push_back(std::move(*first));
        }
        ByteVector payload = encode_unsigned(key, frame);
        const Signature signature = sign(*identity_, attested_text(context_, payload));
        payload.insert(payload.end(), signature.begin(), signature.end());
        payloads.push_back(std::move(payload));
    }
    return payloads;
}

}  // namespace kvasir
