// State on a disk: restarts, damage, a second hub, a full disk, backups, and kills in the middle of settlements.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <limits>

#include "base/files.h"
#include "base/temp_directory.h"
#include "market/ledger.h"
#include "market/market_fixture.h"
#include "market/random.h"

namespace kvasir::market::testing {
namespace {

using ::testing::HasSubstr;

class StoreTest : public ::testing::Test {
  protected:
    std::filesystem::path path(const char* name = "hub.db") const { return directory_.path() / name; }
    std::unique_ptr<SqliteStore> open(SqliteOptions options = {}) const {
        Result<std::unique_ptr<SqliteStore>> store = SqliteStore::open(path(), options);
        EXPECT_TRUE(store) << store.error().message;
        return std::move(*store);
    }
    void expect_refused(ErrorKind kind, const char* text) const {
        Result<std::unique_ptr<SqliteStore>> store = SqliteStore::open(path());
        ASSERT_FALSE(store);
        EXPECT_EQ(store.error().kind, kind) << store.error().message;
        EXPECT_THAT(store.error().message, HasSubstr(text));
        EXPECT_THAT(store.error().message, HasSubstr(path().string()));
    }
    static Digest digest(std::uint64_t number) { return sha256(std::as_bytes(std::span(&number, 1))); }
    // Receipt `sequence` has `sequence % 4` lines.
    static std::vector<Entry> entries(std::uint64_t sequence) {
        std::vector<Entry> all;
        for (std::uint32_t line = 0; line < sequence % 4; ++line) {
            const std::uint64_t rows = sequence + line;
            all.push_back({.at = Instant(std::chrono::seconds(sequence)),
                           .owner = digest(sequence % 3),
                           .worker = digest(sequence % 5),
                           .backbone = digest(99),
                           .sequence = sequence,
                           .line = line,
                           .piece = {1, line, 1},
                           .epoch = 1,
                           .rows = rows,
                           .expert_bytes = 1'000'000,
                           .rate = 1000,
                           .amount = static_cast<Micros>(rows)});
        }
        return all;
    }
    static Status settle(Store& store, std::uint64_t sequence) {
        std::vector<Entry> all = entries(sequence);
        return store.settle({digest(99), sequence, digest(1000 + sequence), {}, 0}, all);
    }
    static Micros owed(std::uint64_t first, std::uint64_t last) {
        Micros sum = 0;
        for (std::uint64_t sequence = first; sequence <= last; ++sequence) {
            for (const Entry& entry : entries(sequence))
                sum += entry.amount;
        }
        return sum;
    }

    TempDirectory directory_ = std::move(*TempDirectory::create("kvasir-store-"));
};

TEST_F(StoreTest, RemembersEverything) {
    const Offer offer = small_offer(2, 4);
    NodeRecord node{.id = digest(1), .key = digest(2), .owner = digest(3), .roles = kWorker | kAdmin};
    node.registered = Instant(5ms);
    node.generation = 7;
    node.revoked = true;
    const WorkerRecord worker{digest(1), 9, 2, Instant(1ms), Instant(2ms), Instant(3ms)};
    LeaseRecord live;
    live.node = digest(1);
    live.epoch = 9;
    live.model = offer.model();
    live.owner = digest(3);
    live.site = "a b";
    live.granted = Instant(10ms);
    live.priced = Instant(11ms);
    live.pieces = {{{1, 0, 2}, 77, Instant(12ms), Instant(13ms)}, {{2, 1, 1}, 78, Instant(14ms), Instant(14ms)}};
    LeaseRecord ended = live;
    ended.epoch = 8;
    ended.end = LeaseEnd::convicted;
    ended.ended = Instant(20ms);
    const LoadRecord load{offer.model(), 1, Instant(30ms), {0.5F, 1.5F}, {0.25F, 0}};
    std::string secret;
    {
        auto store = open();
        const std::vector<Change> changes = {offer, node, worker, live, ended, load};
        ASSERT_TRUE(store->apply(changes));
        secret = store->load()->secret;
    }
    auto store = open();
    const Remembered all = store->load().value();
    EXPECT_EQ(all.secret, secret);
    EXPECT_EQ(all.secret.size(), 32U);
    EXPECT_EQ(all.offers, std::vector{offer});
    EXPECT_EQ(all.nodes, std::vector{node});
    EXPECT_EQ(all.workers, std::vector{worker});
    EXPECT_EQ(all.leases, std::vector{live});
    EXPECT_EQ(all.loads, std::vector{load});
    EXPECT_EQ(store->find_lease(digest(1), 8).value(), ended);
    ASSERT_TRUE(store->forget_leases(Instant(20ms)));
    EXPECT_TRUE(store->find_lease(digest(1), 8).value());
    ASSERT_TRUE(store->forget_leases(Instant(21ms)));
    EXPECT_FALSE(store->find_lease(digest(1), 8).value());
    EXPECT_TRUE(store->find_lease(digest(1), 9).value());
}

TEST_F(StoreTest, ASecondHubIsRefusedAsLongAsTheFirstRuns) {
    {
        auto first = open();
        ASSERT_TRUE(settle(*first, 1));
        // From another process too.
        const pid_t child = ::fork();
        if (child == 0) {
            Result<std::unique_ptr<SqliteStore>> second = SqliteStore::open(path());
            ::_exit(!second && second.error().kind == ErrorKind::unavailable ? 0 : 1);
        }
        int status = 0;
        ASSERT_EQ(::waitpid(child, &status, 0), child);
        EXPECT_EQ(status, 0);
        expect_refused(ErrorKind::unavailable, "another hub");
        EXPECT_TRUE(settle(*first, 2));
    }
    open();
}

TEST_F(StoreTest, DamageAndForeignFilesAreNamed) {
    { std::ofstream(path()) << std::string(100'000, 'x'); }
    expect_refused(ErrorKind::invalid, "damaged");
    std::filesystem::remove(path());
    {
        auto store = open();
        for (std::uint64_t sequence = 1; sequence < 300; ++sequence)
            ASSERT_TRUE(settle(*store, sequence));
    }
    {
        std::fstream file(path(), std::ios::in | std::ios::out | std::ios::binary);
        file.seekp(4096 * 3);
        file << std::string(4096 * 8, 'x');
    }
    expect_refused(ErrorKind::invalid, "damaged");
    std::filesystem::remove(path());
    {
        Database other = Database::open(path(), SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE).value();
        ASSERT_TRUE(other.run_script("CREATE TABLE recipes(name TEXT)"));
    }
    expect_refused(ErrorKind::invalid, "not a hub's");
    std::filesystem::remove(path());
    open();
    {
        Database newer = Database::open(path(), SQLITE_OPEN_READWRITE).value();
        ASSERT_TRUE(newer.run_script("PRAGMA user_version = 1000"));
    }
    expect_refused(ErrorKind::unsupported, "newer hub");
    Result<std::unique_ptr<SqliteStore>> nowhere = SqliteStore::open(path("no/such/directory.db"));
    ASSERT_FALSE(nowhere);
    EXPECT_EQ(nowhere.error().kind, ErrorKind::io);
}

TEST_F(StoreTest, AFullDiskLosesNothingAndSaysSo) {
    auto store = open({.max_bytes = 200'000});
    std::uint64_t sequence = 0;
    Status settled;
    while (settled && sequence < 10'000)
        settled = settle(*store, ++sequence);
    ASSERT_FALSE(settled);
    EXPECT_EQ(settled.error().kind, ErrorKind::io);
    EXPECT_THAT(settled.error().message, HasSubstr("no space"));
    EXPECT_EQ(store->ledger()->total, owed(1, sequence - 1));
    EXPECT_FALSE(store->find_receipt(digest(99), sequence).value());
    EXPECT_TRUE(store->check_ledger());
    store.reset();
    store = open();
    EXPECT_TRUE(settle(*store, sequence));
    EXPECT_EQ(store->ledger()->total, owed(1, sequence));
    EXPECT_TRUE(store->check_ledger());
}

TEST_F(StoreTest, ABackupIsAHubsDatabase) {
    {
        auto store = open();
        for (std::uint64_t sequence = 1; sequence <= 2000; ++sequence)
            ASSERT_TRUE(settle(*store, sequence));
        ASSERT_TRUE(store->backup(path("copy.db")));
        ASSERT_TRUE(settle(*store, 2001));
        EXPECT_EQ(store->backup(path("copy.db")).error().kind, ErrorKind::usage);
        EXPECT_FALSE(store->backup(path("no/such/copy.db")));
        EXPECT_FALSE(std::filesystem::exists(path("copy.db.part")));
    }
    Result<std::unique_ptr<SqliteStore>> copy = SqliteStore::open(path("copy.db"));
    ASSERT_TRUE(copy) << copy.error().message;
    EXPECT_EQ((*copy)->ledger()->total, owed(1, 2000));
    EXPECT_TRUE((*copy)->check_ledger());
    EXPECT_TRUE(settle(**copy, 2001));
}

TEST_F(StoreTest, TheLedgerIsAppendOnlyAndChecksItself) {
    {
        auto store = open();
        for (std::uint64_t sequence = 1; sequence <= 20; ++sequence)
            ASSERT_TRUE(settle(*store, sequence));
        EXPECT_FALSE(settle(*store, 20));
        EXPECT_EQ(store->ledger()->total, owed(1, 20));
    }
    auto tamper = [&](const char* sql) {
        Database database = Database::open(path(), SQLITE_OPEN_READWRITE).value();
        return database.run_script(sql).has_value();
    };
    EXPECT_FALSE(tamper("UPDATE entry SET amount = amount + 1 WHERE number = 5"));
    EXPECT_FALSE(tamper("DELETE FROM entry WHERE number = 5"));
    EXPECT_FALSE(tamper("UPDATE receipt SET paid = 5"));
    EXPECT_FALSE(tamper("DELETE FROM receipt"));
    EXPECT_TRUE(open()->check_ledger());
    auto expect_mismatch = [&](const char* sql, const char* text) {
        std::filesystem::copy_file(path(), path("kept.db"), std::filesystem::copy_options::overwrite_existing);
        ASSERT_TRUE(tamper(sql)) << sql;
        Status checked = open()->check_ledger();
        ASSERT_FALSE(checked) << sql;
        EXPECT_EQ(checked.error().kind, ErrorKind::mismatch);
        EXPECT_THAT(checked.error().message, HasSubstr(text));
        std::filesystem::copy_file(path("kept.db"), path(), std::filesystem::copy_options::overwrite_existing);
    };
    expect_mismatch("UPDATE balance SET amount = amount + 1 WHERE owner = (SELECT min(owner) FROM balance)", "balance");
    expect_mismatch("DELETE FROM balance WHERE owner = (SELECT max(owner) FROM balance)", "balance");
    expect_mismatch("INSERT INTO balance VALUES(x'00', 5)", "balance");
    expect_mismatch("DROP TRIGGER entry_kept; UPDATE entry SET rows = rows + 1 WHERE number = 7", "entry 7");
    expect_mismatch("DROP TRIGGER entry_stays; DELETE FROM entry WHERE number = 7", "entry 7");
}

TEST_F(StoreTest, ABalanceBeyond64BitsIsRefused) {
    auto store = open();
    constexpr Micros kLargest = std::numeric_limits<Micros>::max();
    std::vector<Entry> one(1);
    one[0].amount = kLargest;
    ASSERT_TRUE(store->settle({digest(99), 1, {}, {}, 0}, one));
    one[0].amount = 1;
    EXPECT_FALSE(store->settle({digest(99), 2, {}, {}, 0}, one));
    EXPECT_FALSE(store->find_receipt(digest(99), 2).value());
    EXPECT_EQ(store->balance({}).value(), kLargest);
    EXPECT_EQ(store->ledger()->entries, 1U);
}

// A child settles receipt after receipt and says so; it is killed at some moment. What it said is there, once; nothing
// else is, but perhaps the one it was at.
TEST_F(StoreTest, AKillNeitherLosesNorDoublesAnEntry) {
    Random random(3);
    std::uint64_t settled = 0;
    for (int round = 0; round < 12; ++round) {
        int pipe[2];
        ASSERT_EQ(::pipe(pipe), 0);
        const pid_t child = ::fork();
        ASSERT_GE(child, 0);
        if (child == 0) {
            ::close(pipe[0]);
            Result<std::unique_ptr<SqliteStore>> store = SqliteStore::open(path());
            if (!store) ::_exit(1);
            for (std::uint64_t sequence = settled + 1;; ++sequence) {
                if (!(*store)->find_receipt(digest(99), sequence).value() && !settle(**store, sequence)) ::_exit(2);
                if (::write(pipe[1], &sequence, sizeof(sequence)) != sizeof(sequence)) ::_exit(3);
            }
        }
        ::close(pipe[1]);
        const std::uint64_t until = settled + 1 + random.below(60);
        std::uint64_t said = settled;
        while (said < until && ::read(pipe[0], &said, sizeof(said)) == sizeof(said)) {
        }
        ASSERT_GE(said, until) << "the child ended by itself";
        ::kill(child, SIGKILL);
        while (::read(pipe[0], &said, sizeof(said)) == sizeof(said)) {
        }
        ::close(pipe[0]);
        int status = 0;
        ASSERT_EQ(::waitpid(child, &status, 0), child);
        ASSERT_TRUE(WIFSIGNALED(status));

        auto store = open();
        const bool one_more = store->find_receipt(digest(99), said + 1).value().has_value();
        EXPECT_FALSE(store->find_receipt(digest(99), said + 2).value());
        settled = said + (one_more ? 1 : 0);
        EXPECT_EQ(store->ledger()->total, owed(1, settled));
        Status checked = store->check_ledger();
        EXPECT_TRUE(checked) << checked.error().message;
        EXPECT_FALSE(settle(*store, said));
        EXPECT_EQ(store->ledger()->total, owed(1, settled));
    }
}

}  // namespace
}  // namespace kvasir::market::testing
