#include "market/market_fixture.h"

#include <algorithm>

namespace kvasir::market::testing {

Offer small_offer(std::uint32_t layers, std::uint32_t experts, std::uint64_t bytes, std::uint32_t target) {
    std::vector<OfferLayer> all;
    for (std::uint32_t layer = 1; layer <= layers; ++layer)
        all.push_back({layer, experts, bytes});
    return Offer::create(sha256(std::as_bytes(std::span("small", 5))), "small", target, std::move(all)).value();
}

Budget room_for(const Offer& offer, std::uint32_t experts) {
    const std::uint64_t bytes = experts * offer.layers()[0].expert_bytes;
    return {.memory_bytes = bytes,
            .disk_bytes = bytes,
            .download_bytes_per_s = bytes,
            .download_time = 1s,
            .read_bytes_per_s = std::uint64_t{1} << 40};
}

void MarketTest::start(const Offer& offer, std::unique_ptr<SqliteStore> store) {
    store_ = store ? std::move(store) : std::move(SqliteStore::open(":memory:").value());
    open();
    ASSERT_TRUE(market_->offer(offer));
    model_ = offer.model();
    backbone_ = add_backbone();
}

void MarketTest::open() {
    Result<Remembered> remembered = store_->load();
    ASSERT_TRUE(remembered) << remembered.error().message;
    registry_ = std::make_unique<Registry>(*store_, clock_, random_nonce, *remembered, access_);
    Result<std::unique_ptr<Market>> market = Market::open(*store_, *registry_, clock_, *remembered, rules_);
    ASSERT_TRUE(market) << market.error().message;
    market_ = std::move(*market);
}

void MarketTest::restart() {
    market_.reset();
    open();
}

void MarketTest::pass(Duration time) {
    pass_renewing(time, {});
}

void MarketTest::pass_renewing(Duration time, std::span<const Caller> who) {
    for (Duration passed{}; passed < time; passed += rules_.heartbeat) {
        clock_.advance(std::min(rules_.heartbeat, time - passed));
        for (const Caller& caller : who)
            renew(caller, lease_of(caller).epoch);
        ASSERT_TRUE(market_->tick());
    }
}

PublicKey MarketTest::next_key() const {
    return sha256(std::as_bytes(std::span(&nodes_, 1)));
}

OwnershipProof MarketTest::owned_by(const Identity& owner) const {
    return {public_key(owner), sign(owner, ownership_message(node_id(next_key())))};
}

Caller MarketTest::add(const PublicKey& key, const std::optional<OwnershipProof>& proof, Roles roles) {
    Result<NodeRecord> node = registry_->register_node("10.0.0.1", key, proof);
    EXPECT_TRUE(node) << node.error().message;
    EXPECT_TRUE(registry_->set_roles(std::nullopt, node->id, roles));
    ++nodes_;
    return {node->id, node->owner, roles};
}

Caller MarketTest::add_worker(const std::optional<OwnershipProof>& proof) {
    return add(next_key(), proof, kWorker);
}

Caller MarketTest::add_backbone() {
    Identity identity = Identity::generate().value();
    if (!backbone_key_) backbone_key_ = identity;
    return add(public_key(identity), std::nullopt, kBackbone);
}

Caller MarketTest::add_admin() {
    return add(next_key(), std::nullopt, kAdmin);
}

Result<Grant> MarketTest::enrol(const Caller& who, std::vector<Wish> wishes) {
    return market_->enrol(who, site_of_node(who.node), model_, wishes);
}

Wish MarketTest::wish(const Caller& who, const Piece& piece) {
    const View view = market_->view(who, site_of_node(who.node), model_).value().view;
    const Offer::Cells cells = view.offer->cells_of(piece).value();
    Rate sum = 0;
    for (CellIndex cell = cells.first; cell < cells.end; ++cell)
        sum += view.rates[cell];
    return {piece, sum / piece.count};
}

LeaseRecord MarketTest::lease(const Caller& who, std::vector<Piece> pieces) {
    std::vector<Wish> wishes;
    for (const Piece& piece : pieces)
        wishes.push_back(wish(who, piece));
    Result<Grant> grant = enrol(who, wishes);
    EXPECT_TRUE(grant) << grant.error().message;
    EXPECT_TRUE(grant->refused.empty());
    return grant->lease;
}

void MarketTest::enrol_by_choice(const Caller& who, const Budget& budget, std::uint64_t seed) {
    for (int attempt = 0; attempt < 100; ++attempt) {
        const NodeView view = market_->view(who, site_of_node(who.node), model_).value();
        const std::vector<Wish> wishes = choose(view.view, budget, view.held, rules_, seed);
        if (wishes.empty()) return;
        Result<Grant> grant = enrol(who, wishes);
        if (!grant && grant.error().kind == ErrorKind::unavailable) return;  // it moved lately
        ASSERT_TRUE(grant) << grant.error().message;
        if (grant->refused.empty()) return;
    }
    FAIL() << "refused a hundred times";
}

void MarketTest::prove(const Caller& who) {
    const LeaseRecord lease = lease_of(who);
    ProbeReport report{.node = who.node, .epoch = lease.epoch, .passed = {}, .failed = {}};
    for (const LeasedPiece& leased : lease.pieces)
        report.passed.push_back(leased.piece);
    Status proved = market_->report_probe(backbone_, report);
    ASSERT_TRUE(proved) << proved.error().message;
}

LeaseRecord MarketTest::lease_of(const Caller& who) const {
    return market_->lease(who).value().lease;
}

std::vector<DemandRow> MarketTest::demand() const {
    return market_->demand(model_).value();
}

DemandRow MarketTest::cell(std::uint32_t layer, std::uint32_t expert) const {
    for (const DemandRow& row : demand()) {
        if (row.piece.layer == layer && row.piece.contains(expert)) return row;
    }
    ADD_FAILURE() << "no layer " << layer << ", expert " << expert;
    return {};
}

Receipt MarketTest::receipt(std::uint64_t sequence, std::vector<ReceiptLine> lines) const {
    return {backbone_.node, sequence, model_, std::move(lines)};
}

Result<Settlement> MarketTest::settle(std::uint64_t sequence, std::vector<ReceiptLine> lines) {
    const ByteVector bytes = encode(receipt(sequence, std::move(lines)));
    return market_->settle(bytes, sign(*backbone_key_, bytes));
}

}  // namespace kvasir::market::testing
