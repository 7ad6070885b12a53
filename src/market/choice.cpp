#include "market/choice.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>

namespace kvasir::market {
namespace {

constexpr double kWiderBonus = 0.03;  // per doubling
constexpr double kSameRangeBonus = 0.10;
// Blocks much narrower than the room left would make many small pieces of one lease.
constexpr int kLevelsAtOnce = 4;

// A block's sums over those of its experts that can be had: not taken, not chosen, worth something.
struct Block {
    float value = 0;  // rates, with bonuses
    float load = 0;
    std::uint32_t open = 0;
    std::uint32_t fresh = 0;  // open and not kept: to be downloaded

    void add(const Block& other) {
        value += other.value;
        load += other.load;
        open += other.open;
        fresh += other.fresh;
    }
};

// levels[k][i]: experts [i * 2^k, (i + 1) * 2^k).
struct LayerBlocks {
    std::vector<std::vector<Block>> levels;

    void sum_up() {
        for (std::size_t level = 1; level < levels.size(); ++level) {
            for (std::size_t i = 0; i < levels[level].size(); ++i) {
                Block sum = levels[level - 1][2 * i];
                if (2 * i + 1 < levels[level - 1].size()) sum.add(levels[level - 1][2 * i + 1]);
                levels[level][i] = sum;
            }
        }
    }
};

struct Room {
    double bytes = 0;
    double download = 0;
    double load = 0;
};

struct Pick {
    std::size_t layer = 0;
    int level = 0;
    std::size_t block = 0;
    double score = 0;
};

std::uint64_t mixed(std::uint64_t value) {  // the finaliser of SplitMix64
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ULL;
    value = (value ^ (value >> 27)) * 0x94d049bb133111ebULL;
    return value ^ (value >> 31);
}

class Chooser {
  public:
    Chooser(const View& view, const Budget& budget, std::span<const Piece> kept, const Rules& rules, std::uint64_t seed)
        : view_(view), offer_(*view.offer), rules_(rules), seed_(seed), kept_(offer_.cells(), 0) {
        total_.bytes = static_cast<double>(std::min(budget.memory_bytes, budget.disk_bytes));
        total_.download = static_cast<double>(budget.download_bytes_per_s) *
                          std::chrono::duration<double>(budget.download_time).count();
        total_.load = static_cast<double>(budget.read_bytes_per_s);
        left_ = total_;
        for (const Piece& piece : kept) {
            // What the model does not have (any more) can't be kept.
            if (Result<Offer::Cells> cells = offer_.cells_of(piece); cells) {
                std::fill(kept_.begin() + cells->first, kept_.begin() + cells->end, 1);
            }
        }
        smallest_ = offer_.layers()[0].expert_bytes;
        for (const OfferLayer& layer : offer_.layers())
            smallest_ = std::min(smallest_, layer.expert_bytes);
    }

    std::vector<Wish> run() {
        if (total_.load <= 0 || left_.bytes < static_cast<double>(smallest_)) return {};
        build();
        while (wishes_.size() < rules_.max_pieces) {
            std::optional<Pick> pick = best();
            if (!pick || !take(*pick)) break;
        }
        std::sort(wishes_.begin(), wishes_.end(), [](const Wish& a, const Wish& b) { return a.piece < b.piece; });
        return std::move(wishes_);
    }

  private:
    void build() {
        blocks_.resize(offer_.layers().size());
        for (std::size_t l = 0; l < blocks_.size(); ++l) {
            const std::uint32_t experts = offer_.layers()[l].experts;
            const CellIndex first = offer_.first_cell(l);
            std::vector<Block> cells(experts);
            for (std::uint32_t e = 0; e < experts; ++e)
                cells[e] = cell(first + e);
            blocks_[l].levels.push_back(std::move(cells));
            for (std::size_t width = experts; width > 1; width = (width + 1) / 2)
                blocks_[l].levels.emplace_back((width + 1) / 2);
            blocks_[l].sum_up();
            highest_ = std::max(highest_, static_cast<int>(blocks_[l].levels.size()) - 1);
        }
    }

    Block cell(CellIndex index) const {
        if (view_.rates[index] == 0) return {};
        const bool kept = kept_[index] != 0;
        const double factor = kept ? 1 + rules_.gain_percent / 100.0 : 1;
        return {static_cast<float>(static_cast<double>(view_.rates[index]) * factor), view_.loads[index], 1,
                kept ? 0U : 1U};
    }

    // The best block no wider than the room, among the widest few widths first.
    std::optional<Pick> best() const {
        const double fitting = left_.bytes / static_cast<double>(smallest_);
        if (fitting < 1) return std::nullopt;
        int top = std::min(highest_, static_cast<int>(std::log2(fitting)));
        for (; top >= 0; top -= kLevelsAtOnce) {
            std::optional<Pick> pick;
            for (int level = top; level >= std::max(0, top - kLevelsAtOnce + 1); --level)
                search(level, pick);
            if (pick) return pick;
        }
        return std::nullopt;
    }

    void search(int level, std::optional<Pick>& pick) const {
        const std::size_t layers = blocks_.size();
        for (std::size_t step = 0; step < layers; ++step) {
            const std::size_t layer = (step + seed_) % layers;
            if (level >= static_cast<int>(blocks_[layer].levels.size())) continue;
            const std::vector<Block>& row = blocks_[layer].levels[static_cast<std::size_t>(level)];
            const std::size_t start = mixed(seed_ + static_cast<std::uint64_t>(level)) % row.size();
            for (std::size_t i = 0; i < row.size(); ++i) {
                const std::size_t block = i + start < row.size() ? i + start : i + start - row.size();
                const double score = score_of(layer, level, block, row[block]);
                if (score > 0 && (!pick || score > pick->score)) pick = Pick{layer, level, block, score};
            }
        }
    }

    // 0 where it does not fit.
    double score_of(std::size_t layer, int level, std::size_t block, const Block& sums) const {
        if (sums.open == 0) return 0;
        const auto expert_bytes = static_cast<double>(offer_.layers()[layer].expert_bytes);
        const double bytes = sums.open * expert_bytes;
        if (bytes > left_.bytes || sums.fresh * expert_bytes > left_.download || sums.load > left_.load) return 0;
        double score = sums.value * expert_bytes / (bytes / total_.bytes + sums.load / total_.load);
        score *= 1 + kWiderBonus * level;
        for (const Pick& taken : taken_) {
            if (taken.level == level && taken.block == block) return score * (1 + kSameRangeBonus);
        }
        return score;
    }

    // False once a lease can hold no more pieces.
    bool take(const Pick& pick) {
        LayerBlocks& layer = blocks_[pick.layer];
        const Block sums = layer.levels[static_cast<std::size_t>(pick.level)][pick.block];
        const auto expert_bytes = static_cast<double>(offer_.layers()[pick.layer].expert_bytes);
        left_.bytes -= sums.open * expert_bytes;
        left_.download -= sums.fresh * expert_bytes;
        left_.load -= sums.load;
        std::vector<Block>& cells = layer.levels[0];
        const std::size_t first = pick.block << pick.level;
        const std::size_t end = std::min(cells.size(), (pick.block + 1) << pick.level);
        for (std::size_t e = first; e < end;) {
            if (cells[e].open == 0) {
                ++e;
                continue;
            }
            std::size_t run = e;
            while (run < end && cells[run].open != 0)
                cells[run++] = {};
            if (wishes_.size() >= rules_.max_pieces) return false;
            add_wish(pick.layer, e, run);
            e = run;
        }
        layer.sum_up();
        taken_.push_back(pick);
        return true;
    }

    void add_wish(std::size_t layer, std::size_t first, std::size_t end) {
        const CellIndex base = offer_.first_cell(layer);
        unsigned __int128 sum = 0;
        for (std::size_t e = first; e < end; ++e)
            sum += view_.rates[base + e];
        wishes_.push_back({{.layer = offer_.layers()[layer].layer,
                            .first = static_cast<std::uint32_t>(first),
                            .count = static_cast<std::uint32_t>(end - first)},
                           static_cast<Rate>(sum / (end - first))});
    }

    const View& view_;
    const Offer& offer_;
    const Rules& rules_;
    std::uint64_t seed_;
    std::vector<std::uint8_t> kept_;
    std::uint64_t smallest_ = 0;
    int highest_ = 0;
    Room total_;
    Room left_;
    std::vector<LayerBlocks> blocks_;
    std::vector<Pick> taken_;
    std::vector<Wish> wishes_;
};

}  // namespace

std::vector<Wish> choose(const View& view, const Budget& budget, std::span<const Piece> kept, const Rules& rules,
                         std::uint64_t seed) {
    return Chooser(view, budget, kept, rules, mixed(seed)).run();
}

}  // namespace kvasir::market
