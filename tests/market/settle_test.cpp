// Receipts, what they pay, and the ledger.
#include <sstream>

#include "market/ledger.h"
#include "market/market_fixture.h"
#include "market/random.h"

namespace kvasir::market::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class SettleTest : public MarketTest {
  protected:
    void SetUp() override {
        start(small_offer(2, 8, 5'000'000));
        worker_ = add_worker();
        lease_ = lease(worker_, {{1, 2, 4}});
        prove(worker_);
    }
    ReceiptLine line(std::uint64_t rows, Piece piece = {1, 2, 4}) const {
        return {worker_.node, lease_.epoch, piece, rows};
    }
    Micros balance() const { return store_->balance(worker_.owner).value(); }
    std::string exported() const {
        std::string text;
        EXPECT_TRUE(export_ledger(*store_, 1, [&](std::string_view each) {
            text.append(each).append("\n");
            return true;
        }));
        return text;
    }

    Caller worker_;
    LeaseRecord lease_;
};

TEST_F(SettleTest, PaysRowsTimesBytesTimesTheLeasesRate) {
    Result<Settlement> settled = settle(1, {line(10), line(1, {1, 3, 1})});
    ASSERT_TRUE(settled) << settled.error().message;
    EXPECT_THAT(settled->lines, ElementsAre(LineOutcome::paid, LineOutcome::paid));
    // 48 units per GB, 5 MB a row.
    EXPECT_EQ(settled->paid, 11 * 240'000);
    EXPECT_EQ(balance(), 11 * 240'000);
    EXPECT_TRUE(store_->check_ledger());
}

TEST_F(SettleTest, TheSameReceiptAgainPaysNothing) {
    ASSERT_TRUE(settle(1, {line(10)}));
    for (int i = 0; i < 3; ++i) {
        if (i == 2) restart();
        Result<Settlement> again = settle(1, {line(10)});
        ASSERT_TRUE(again) << again.error().message;
        EXPECT_TRUE(again->repeated);
        EXPECT_EQ(again->paid, 2'400'000);
        EXPECT_EQ(balance(), 2'400'000);
    }
    // Another one under its number is refused; in whatever order, others are not.
    EXPECT_EQ(settle(1, {line(11)}).error().kind, ErrorKind::usage);
    EXPECT_TRUE(settle(7, {line(1)}));
    EXPECT_TRUE(settle(3, {line(1)}));
    EXPECT_EQ(balance(), 12 * 240'000);
}

TEST_F(SettleTest, ForgeriesAreRefused) {
    const ByteVector bytes = encode(receipt(1, {line(10)}));
    Signature good = sign(*backbone_key_, bytes);
    EXPECT_EQ(market_->settle(bytes, sign(Identity::generate().value(), bytes)).error().kind, ErrorKind::invalid);
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        ByteVector changed = bytes;
        changed[i] ^= std::byte{1};
        EXPECT_FALSE(market_->settle(changed, good)) << "byte " << i;
    }
    // Signed by a worker, by a stranger, by a backbone that is none any more.
    Receipt by_stranger = receipt(1, {line(10)});
    const Identity stranger = Identity::generate().value();
    by_stranger.backbone = stranger.id();
    EXPECT_EQ(market_->settle(encode(by_stranger), sign(stranger, encode(by_stranger))).error().kind, ErrorKind::usage);
    ASSERT_TRUE(registry_->set_roles(std::nullopt, backbone_.node, kWorker));
    EXPECT_EQ(market_->settle(bytes, good).error().kind, ErrorKind::usage);
    ASSERT_TRUE(registry_->set_roles(std::nullopt, backbone_.node, kBackbone));
    ASSERT_TRUE(registry_->revoke(std::nullopt, backbone_.node));
    EXPECT_EQ(market_->settle(bytes, good).error().kind, ErrorKind::usage);
    EXPECT_EQ(balance(), 0);
}

TEST_F(SettleTest, SelfDealingPaysNothing) {
    // The backbone's own worker, of one owner by the owner's proof.
    const Caller own = add_worker(OwnershipProof(owned_by(*backbone_key_)));
    ASSERT_EQ(own.owner, backbone_.owner);
    const LeaseRecord held = lease(own, {{2, 0, 2}});
    Result<Settlement> settled = settle(1, {{own.node, held.epoch, {2, 0, 2}, 10}, line(1)});
    ASSERT_TRUE(settled) << settled.error().message;
    EXPECT_THAT(settled->lines, ElementsAre(LineOutcome::self_dealing, LineOutcome::paid));
    EXPECT_EQ(store_->balance(own.owner).value(), 0);
    EXPECT_EQ(settled->paid, 240'000);
}

TEST_F(SettleTest, OnlyWorkUnderALeaseIsPaid) {
    ReceiptLine stranger = line(1);
    stranger.worker = backbone_.node;
    ReceiptLine later = line(1);
    later.epoch = lease_.epoch + 1;
    Result<Settlement> settled = settle(1, {stranger, later, line(1, {1, 1, 2}), line(1, {1, 5, 2}), line(1, {2, 2, 1}),
                                            line(1, {1, 3, 0xffffffff}), line(kMaxReceiptRows)});
    ASSERT_TRUE(settled) << settled.error().message;
    EXPECT_THAT(settled->lines, ElementsAre(LineOutcome::unknown_lease, LineOutcome::unknown_lease,
                                            LineOutcome::not_leased, LineOutcome::not_leased, LineOutcome::not_leased,
                                            LineOutcome::not_leased, LineOutcome::too_large));
    EXPECT_EQ(settled->paid, 0);
    EXPECT_EQ(store_->ledger().value().entries, 0U);
    EXPECT_TRUE(settle(1, {stranger, later, line(1, {1, 1, 2}), line(1, {1, 5, 2}), line(1, {2, 2, 1}),
                           line(1, {1, 3, 0xffffffff}), line(kMaxReceiptRows)})
                    ->repeated);
}

TEST_F(SettleTest, PastLeasesArePaidForAWeekAtTheirOwnRate) {
    for (int i = 0; i < 5; ++i)
        lease(add_worker(), {{1, 0, 8}});
    lease(worker_, {{1, 0, 8}});  // another epoch
    ASSERT_TRUE(settle(1, {line(1)}));
    EXPECT_EQ(balance(), 240'000);
    clock_.advance(rules_.receipt_window);
    EXPECT_THAT(settle(2, {line(1)})->lines, ElementsAre(LineOutcome::paid));
    clock_.advance(1ms);
    EXPECT_THAT(settle(3, {line(1)})->lines, ElementsAre(LineOutcome::unknown_lease));
    clock_.advance(2h);
    ASSERT_TRUE(market_->tick());
    EXPECT_FALSE(store_->find_lease(worker_.node, lease_.epoch).value());
}

TEST_F(SettleTest, AConvictedLeaseIsNotPaid) {
    ASSERT_TRUE(settle(1, {line(1)}));
    ASSERT_TRUE(market_->report_probe(backbone_, {worker_.node, lease_.epoch, {}, {{1, 2, 4}}}));
    EXPECT_THAT(settle(2, {line(1)})->lines, ElementsAre(LineOutcome::convicted));
    EXPECT_EQ(balance(), 240'000);
}

TEST_F(SettleTest, APaidReceiptKeepsAServingPieceProved) {
    std::vector<Caller> all = {worker_};
    pass_renewing(rules_.proof - 1min, all);
    ASSERT_TRUE(settle(1, {{worker_.node, lease_of(worker_).epoch, {1, 2, 1}, 1}}));
    pass_renewing(2h, all);
    EXPECT_EQ(cell(1, 2).serving, 1U);
    pass_renewing(rules_.proof, all);
    EXPECT_EQ(cell(1, 2).serving, 0U);
    // One that does not serve is not proved by it.
    const std::uint64_t epoch = lease(worker_, {{1, 2, 4}}).epoch;
    ASSERT_TRUE(settle(2, {{worker_.node, epoch, {1, 2, 1}, 1}}));
    EXPECT_EQ(cell(1, 2).serving, 0U);
}

TEST_F(SettleTest, EarningsPerPieceAndDay) {
    ASSERT_TRUE(settle(1, {line(10), line(5, {1, 2, 1})}));
    ASSERT_TRUE(settle(2, {line(3)}));
    clock_.advance(24h);
    ASSERT_TRUE(settle(3, {line(1)}));
    const std::vector<Earning> all = store_->earnings(worker_.owner, 0, 1'000'000, 100).value();
    ASSERT_EQ(all.size(), 3U);
    EXPECT_EQ(all[0], (Earning{worker_.node, model_, {1, 2, 4}, 20'001, 1, 240'000}));
    EXPECT_EQ(all[1], (Earning{worker_.node, model_, {1, 2, 1}, 20'000, 5, 5 * 240'000}));
    EXPECT_EQ(all[2], (Earning{worker_.node, model_, {1, 2, 4}, 20'000, 13, 13 * 240'000}));
    EXPECT_EQ(store_->earnings(worker_.owner, 20'001, 20'001, 100).value().size(), 1U);
    EXPECT_EQ(store_->earnings(worker_.owner, 20'000, 20'000, 100).value().size(), 2U);
    EXPECT_EQ(store_->earnings(worker_.owner, 0, 1'000'000, 2).value().size(), 2U);
    EXPECT_EQ(store_->earnings(backbone_.owner, 0, 1'000'000, 100).value().size(), 0U);
}

TEST_F(SettleTest, TheExportCanBeCheckedByAnybody) {
    for (std::uint64_t sequence = 1; sequence <= 5; ++sequence)
        ASSERT_TRUE(settle(sequence, {line(sequence), line(2 * sequence, {1, 4, 1})}));
    const std::string text = exported();
    std::istringstream lines(text);
    Result<LedgerState> checked = check_export(lines);
    ASSERT_TRUE(checked) << checked.error().message;
    const LedgerState ledger = store_->ledger().value();
    EXPECT_EQ(checked->entries, 10U);
    EXPECT_EQ(checked->entries, ledger.entries);
    EXPECT_EQ(checked->head, ledger.head);
    EXPECT_EQ(checked->total, ledger.total);
    EXPECT_EQ(checked->total, balance());
    // One digit, one line, one swap.
    auto refused = [](const std::string& forged) {
        std::istringstream stream(forged);
        Result<LedgerState> result = check_export(stream);
        EXPECT_FALSE(result);
        if (!result) {
            EXPECT_EQ(result.error().kind, ErrorKind::mismatch);
        }
    };
    std::string forged = text;
    const std::size_t amount = forged.find("\"amount\":") + 9;
    forged[amount] = forged[amount] == '9' ? '8' : '9';
    refused(forged);
    refused(text.substr(text.find('\n') + 1));
    const std::size_t second = text.find('\n') + 1;
    const std::size_t third = text.find('\n', second) + 1;
    refused(text.substr(0, second) + text.substr(third));
    refused(text.substr(second, third - second) + text.substr(0, second) + text.substr(third));
    refused(text + "{}\n");
}

TEST_F(SettleTest, DamagedReceiptsAreRefused) {
    const ByteVector good = encode(receipt(1, {line(10), line(3)}));
    EXPECT_EQ(decode_receipt(good).value(), receipt(1, {line(10), line(3)}));
    for (std::size_t size = 0; size < good.size(); ++size)
        EXPECT_EQ(decode_receipt(ByteSpan(good).first(size)).error().kind, ErrorKind::invalid) << size;
    ByteVector longer = good;
    longer.push_back({});
    EXPECT_FALSE(decode_receipt(longer));
    EXPECT_FALSE(decode_receipt(encode(receipt(0, {line(1)}))));
    EXPECT_FALSE(decode_receipt(encode(receipt(std::uint64_t{1} << 63, {line(1)}))));
    EXPECT_FALSE(decode_receipt(encode(receipt(1, {}))));
    EXPECT_FALSE(decode_receipt(encode(receipt(1, {line(0)}))));
    EXPECT_FALSE(decode_receipt(encode(receipt(1, {line(kMaxReceiptRows + 1)}))));
    EXPECT_FALSE(decode_receipt(encode(receipt(1, std::vector<ReceiptLine>(kMaxReceiptLines + 1, line(1))))));
    EXPECT_TRUE(decode_receipt(encode(receipt(1, std::vector<ReceiptLine>(kMaxReceiptLines, line(1))))));
}

}  // namespace
}  // namespace kvasir::market::testing
