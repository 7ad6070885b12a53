#include "wire/attestation.h"

#include <algorithm>

namespace kvasir {
namespace {

constexpr std::string_view kPurpose = "kvasir attestation 1";
constexpr std::size_t kAnswersHeaderBytes = 16;

template <std::size_t kSize>
void take_into(ByteReader& reader, std::array<std::byte, kSize>& into) {
    const ByteSpan raw = reader.take(kSize);
    std::copy(raw.begin(), raw.end(), into.begin());
}

Result<AttestedAnswers> read_answers(ByteReader& reader, std::size_t& room) {
    AttestedAnswers answers;
    answers.request = reader.read<std::uint64_t>();
    answers.first = reader.read<std::uint32_t>();
    const auto count = reader.read<std::uint32_t>();
    if (reader.failed() || std::uint64_t{count} * sizeof(Digest) > reader.remaining()) {
        return fail(ErrorKind::invalid, "attestation: it announces {} answers, but {} bytes are left", count,
                    reader.remaining());
    }
    if (answers.request == 0 || count == 0 || count > room) {
        return fail(ErrorKind::invalid, "attestation: {} answers to request {}", count, answers.request);
    }
    room -= count;
    answers.digests.resize(count);
    for (Digest& digest : answers.digests)
        take_into(reader, digest);
    return answers;
}

}  // namespace

Digest answer_digest(const AnswerTerms& terms, const Digest& row, ByteSpan answer) {
    ByteWriter writer;
    writer.write(terms.layer);
    writer.write(terms.expert);
    writer.write(terms.hidden);
    writer.write(static_cast<std::uint8_t>(terms.question));
    writer.write(static_cast<std::uint8_t>(terms.answer));
    writer.write(std::uint16_t{0});
    write_recipe(writer, terms.recipe);
    writer.append(row);
    return sha256({writer.buffer(), answer});
}

ByteVector encode_unsigned(const PublicKey& key, const std::vector<AttestedAnswers>& answers) {
    ByteWriter writer;
    writer.append(key);
    writer.write(static_cast<std::uint32_t>(answers.size()));
    writer.write(std::uint32_t{0});
    for (const AttestedAnswers& each : answers) {
        writer.write(each.request);
        writer.write(each.first);
        writer.write(static_cast<std::uint32_t>(each.digests.size()));
        for (const Digest& digest : each.digests)
            writer.append(digest);
    }
    return std::move(writer.buffer());
}

Result<Attestation> decode_attestation(ByteSpan payload) {
    ByteReader reader(payload);
    Attestation attestation;
    take_into(reader, attestation.key);
    const auto count = reader.read<std::uint32_t>();
    const auto zero = reader.read<std::uint32_t>();
    if (reader.failed()) return fail(ErrorKind::invalid, "attestation: it is cut short");
    if (zero != 0) return fail(ErrorKind::invalid, "attestation: its reserved bytes are not 0");
    if (count == 0 || std::uint64_t{count} * kAnswersHeaderBytes > reader.remaining()) {
        return fail(ErrorKind::invalid, "attestation: it announces {} requests, but {} bytes are left", count,
                    reader.remaining());
    }
    std::size_t room = kMostAttested;
    for (std::uint32_t i = 0; i < count; ++i) {
        Result<AttestedAnswers> answers = read_answers(reader, room);
        if (!answers) return fail(answers.error());
        attestation.answers.push_back(std::move(*answers));
    }
    take_into(reader, attestation.signature);
    if (reader.failed()) return fail(ErrorKind::invalid, "attestation: it is cut short");
    if (!reader.finished()) {
        return fail(ErrorKind::invalid, "attestation: {} bytes too many at its end", reader.remaining());
    }
    return attestation;
}

ByteVector attested_text(const AttestationContext& context, ByteSpan payload_without_signature) {
    ByteWriter writer;
    writer.append(std::as_bytes(std::span(kPurpose)));
    writer.append(context.model_id);
    writer.append(context.backbone);
    writer.append(sha256(std::as_bytes(std::span(context.arithmetic))));
    writer.append(sha256(payload_without_signature));
    return std::move(writer.buffer());
}

}  // namespace kvasir
