// A download's journal after any crash: only whole records that check count, and what counts is all there is of it.
#include <cstdint>
#include <cstdlib>

#include "fetch/journal.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace kvasir;
    const Digest fingerprint{};
    // As the bytes are, and as the records of a journal that is this slice's with checks that mutations hardly ever
    // hit.
    ByteVector bytes(size);
    if (size > 0) std::memcpy(bytes.data(), data, size);
    ByteVector repaired = fetch::journal_header(fingerprint);
    fetch::Arrived expected;
    ByteReader reader(bytes);
    while (reader.remaining() >= 16) {
        const auto target = reader.read<std::uint64_t>();
        const auto arrived = reader.read<std::uint64_t>();
        expected[target] = arrived;
        const ByteVector record = fetch::journal_record(fingerprint, target, arrived);
        repaired.insert(repaired.end(), record.begin(), record.end());
    }
    const std::size_t whole = repaired.size();
    const ByteSpan tail = reader.take(reader.remaining());
    repaired.insert(repaired.end(), tail.begin(), tail.end());
    const fetch::JournalContents contents = fetch::parse_journal(repaired, fingerprint);
    if (contents.arrived != expected || contents.good_bytes != whole) std::abort();

    const fetch::JournalContents raw = fetch::parse_journal(bytes, fingerprint);
    if (raw.good_bytes > size) std::abort();
    if (raw.good_bytes > 0 && (raw.good_bytes - fetch::kJournalHeaderBytes) % fetch::kJournalRecordBytes != 0) {
        std::abort();
    }
    return 0;
}
