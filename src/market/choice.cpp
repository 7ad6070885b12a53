#include "market/choice.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <set>
#include <utility>

namespace kvasir::market {
namespace {

constexpr double kNarrower = 0.08;  // off a block's score, per halving of the widest width there is room for
constexpr double kSameRangeBonus = 0.05;
// Blocks much narrower than the room left would make many small pieces of one lease.
constexpr int kLevelsAtOnce = 3;
// A node works in groups of 2^k experts, so many or up to twice as many to its room: a lease is no heap of crumbs.
constexpr double kGroupsOfRoom = 8;

// A block's sums over those of its experts that can be had anew: not taken, not kept, not chosen.
struct Block {
    float value = 0;  // rates
    float load = 0;
    std::uint32_t open = 0;
    float score = 0;  // once its level is scored; 0 where nothing is open

    void add(const Block& other) {
        value += other.value;
        load += other.load;
        open += other.open;
    }
};

struct Level {
    std::vector<Block> blocks;
    float best = 0;  // score
    bool scored = false;
};

// levels[k].blocks[i]: groups [i * 2^k, (i + 1) * 2^k).
struct LayerBlocks {
    std::vector<Level> levels;

    void sum_up() {
        for (std::size_t level = 1; level < levels.size(); ++level) {
            const std::vector<Block>& halves = levels[level - 1].blocks;
            std::vector<Block>& blocks = levels[level].blocks;
            for (std::size_t i = 0; i < blocks.size(); ++i) {
                Block sum = halves[2 * i];
                if (2 * i + 1 < halves.size()) sum.add(halves[2 * i + 1]);
                blocks[i] = sum;
            }
        }
        for (Level& level : levels)
            level.scored = false;
    }
};

// A group all of whose experts that can be had are kept.
struct KeptGroup {
    std::size_t layer = 0;
    std::size_t group = 0;
    Block sums;
    double score = 0;
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
    Chooser(const View& view, const Budget& budget, const Rules& rules, std::uint64_t seed)
        : view_(view), offer_(*view.offer), rules_(rules), seed_(seed) {
        total_.bytes = static_cast<double>(std::min(budget.memory_bytes, budget.disk_bytes));
        total_.download = static_cast<double>(budget.download_bytes_per_s) *
                          std::chrono::duration<double>(budget.download_time).count();
        total_.load = static_cast<double>(budget.read_bytes_per_s);
        left_ = total_;
        smallest_ = offer_.layers()[0].expert_bytes;
        for (const OfferLayer& layer : offer_.layers())
            smallest_ = std::min(smallest_, layer.expert_bytes);
        const double experts = total_.bytes / static_cast<double>(smallest_);
        while (experts >= kGroupsOfRoom * static_cast<double>(2 * group_))
            group_ *= 2;
    }

    std::vector<Wish> run(std::span<const Piece> kept) {
        if (total_.load <= 0 || left_.bytes < static_cast<double>(smallest_)) return {};
        build(kept);
        auto next_kept = kept_.begin();
        std::optional<Pick> pick = best();
        while (wishes_.size() < rules_.max_pieces) {
            if (next_kept != kept_.end() && (!pick || next_kept->score >= pick->score)) {
                keep(*next_kept++);
                // It left less room: what was best may not fit any more.
                if (pick && !fits(pick->layer, block_of(*pick))) pick = best();
            } else if (pick) {
                take(*pick);
                pick = best();
            } else {
                break;
            }
        }
        std::sort(wishes_.begin(), wishes_.end(), [](const Wish& a, const Wish& b) { return a.piece < b.piece; });
        return std::move(wishes_);
    }

  private:
    void build(std::span<const Piece> kept) {
        std::vector<std::uint8_t> is_kept(offer_.cells(), 0);
        for (const Piece& piece : kept) {
            // What the model does not have (any more) can't be kept.
            if (Result<Offer::Cells> cells = offer_.cells_of(piece); cells) {
                std::fill(is_kept.begin() + cells->first, is_kept.begin() + cells->end, 1);
            }
        }
        blocks_.resize(offer_.layers().size());
        for (std::size_t l = 0; l < blocks_.size(); ++l) {
            const std::uint32_t experts = offer_.layers()[l].experts;
            std::vector<Block> groups((experts + group_ - 1) / group_);
            for (std::size_t group = 0; group < groups.size(); ++group)
                groups[group] = build_group(l, group, is_kept);
            std::size_t width = groups.size();
            blocks_[l].levels.push_back({.blocks = std::move(groups)});
            for (; width > 1; width = (width + 1) / 2)
                blocks_[l].levels.push_back({.blocks = std::vector<Block>((width + 1) / 2)});
            blocks_[l].sum_up();
            highest_ = std::max(highest_, static_cast<int>(blocks_[l].levels.size()) - 1);
        }
        std::ranges::stable_sort(kept_, std::greater(), &KeptGroup::score);
    }

    // The group's sums, or nothing if it is kept: then it is a candidate of its own.
    Block build_group(std::size_t layer, std::size_t group, const std::vector<std::uint8_t>& is_kept) {
        Block sums;
        std::uint32_t kept = 0;
        const auto [first, end] = cells_of(layer, group, 1);
        for (CellIndex cell = first; cell < end; ++cell) {
            if (view_.rates[cell] == 0) continue;
            sums.add({static_cast<float>(view_.rates[cell]), view_.loads[cell], 1});
            kept += is_kept[cell];
        }
        if (sums.open == 0) return {};
        if (kept < sums.open) {
            any_missing_ = any_missing_ || is_missing(sums);
            return sums;
        }
        kept_.push_back({layer, group, sums, score(layer, sums) * (1 + rules_.gain_percent / 100.0)});
        return {};
    }

    struct CellRange {
        CellIndex first = 0;
        CellIndex end = 0;
    };
    CellRange cells_of(std::size_t layer, std::size_t group, std::size_t groups) const {
        const CellIndex base = offer_.first_cell(layer);
        const std::size_t experts = offer_.layers()[layer].experts;
        return {base + static_cast<CellIndex>(group * group_),
                base + static_cast<CellIndex>(std::min(experts, (group + groups) * group_))};
    }

    // Only where replicas are missing can the sum be so high.
    bool is_missing(const Block& sums) const {
        return sums.value >= static_cast<double>(rules_.base_rate) * (kMostPopular / 1000.0) * sums.open;
    }

    // The best block no wider than the room: of the widest few widths, or of any where replicas are missing.
    std::optional<Pick> best() {
        const double fitting = left_.bytes / static_cast<double>(smallest_ * group_);
        if (fitting < 1) return std::nullopt;
        int top = std::min(highest_, static_cast<int>(std::log2(fitting)));
        std::optional<Pick> pick;
        if (any_missing_) {
            for (int level = top - kLevelsAtOnce; level >= 0; --level)
                search(level, 1, true, pick);
        }
        for (; top >= 0; top -= kLevelsAtOnce) {
            for (int level = top; level >= std::max(0, top - kLevelsAtOnce + 1); --level)
                search(level, 1 - kNarrower * (top - level), false, pick);
            if (pick) return pick;
        }
        return std::nullopt;
    }

    void search(int number, double factor, bool only_missing, std::optional<Pick>& pick) {
        const std::size_t layers = blocks_.size();
        auto consider = [&](std::size_t layer, std::size_t block, double bonus) {
            const Block& sums = blocks_[layer].levels[static_cast<std::size_t>(number)].blocks[block];
            const double worth = sums.score * bonus;
            if (worth <= 0 || (pick && worth <= pick->score) || (only_missing && !is_missing(sums))) return;
            if (fits(layer, sums)) pick = Pick{layer, number, block, worth};
        };
        for (std::size_t step = 0; step < layers; ++step) {
            const std::size_t layer = (step + seed_) % layers;
            if (number >= static_cast<int>(blocks_[layer].levels.size())) continue;
            Level& level = blocks_[layer].levels[static_cast<std::size_t>(number)];
            if (!level.scored) score_blocks(layer, level);
            for (const auto& [taken_level, block] : ranges_taken_) {
                if (taken_level == number && block < level.blocks.size()) {
                    consider(layer, block, factor * (1 + kSameRangeBonus));
                }
            }
            if (level.best <= 0 || (pick && level.best * factor <= pick->score)) continue;
            const std::size_t start = mixed(seed_ + static_cast<std::uint64_t>(number)) % level.blocks.size();
            for (std::size_t i = 0; i < level.blocks.size(); ++i)
                consider(layer, (i + start) % level.blocks.size(), factor);
        }
    }

    void score_blocks(std::size_t layer, Level& level) const {
        level.best = 0;
        for (Block& block : level.blocks) {
            block.score = block.open == 0 ? 0 : static_cast<float>(score(layer, block));
            level.best = std::max(level.best, block.score);
        }
        level.scored = true;
    }

    double bytes_of(std::size_t layer, const Block& sums) const {
        return sums.open * static_cast<double>(offer_.layers()[layer].expert_bytes);
    }

    bool fits(std::size_t layer, const Block& sums) const {
        const double bytes = bytes_of(layer, sums);
        return bytes <= left_.bytes && bytes <= left_.download && sums.load <= left_.load;
    }

    // Rates times bytes per share of the room and the speed that it takes.
    double score(std::size_t layer, const Block& sums) const {
        const auto expert_bytes = static_cast<double>(offer_.layers()[layer].expert_bytes);
        return sums.value * expert_bytes / (bytes_of(layer, sums) / total_.bytes + sums.load / total_.load);
    }

    const Block& block_of(const Pick& pick) const {
        return blocks_[pick.layer].levels[static_cast<std::size_t>(pick.level)].blocks[pick.block];
    }

    void keep(const KeptGroup& kept) {
        const double bytes = bytes_of(kept.layer, kept.sums);
        if (bytes > left_.bytes || kept.sums.load > left_.load) return;
        left_.bytes -= bytes;
        left_.load -= kept.sums.load;
        add_wishes(kept.layer, cells_of(kept.layer, kept.group, 1));
    }

    void take(const Pick& pick) {
        LayerBlocks& layer = blocks_[pick.layer];
        const Block sums = block_of(pick);
        left_.bytes -= bytes_of(pick.layer, sums);
        left_.download -= bytes_of(pick.layer, sums);
        left_.load -= sums.load;
        std::vector<Block>& groups = layer.levels[0].blocks;
        const std::size_t end = std::min(groups.size(), (pick.block + 1) << pick.level);
        for (std::size_t group = pick.block << pick.level; group < end; ++group) {
            if (groups[group].open == 0) continue;
            groups[group] = {};
            add_wishes(pick.layer, cells_of(pick.layer, group, 1));
        }
        layer.sum_up();
        ranges_taken_.emplace(pick.level, pick.block);
    }

    // Wishes for the experts of the range that can be had.
    void add_wishes(std::size_t layer, CellRange range) {
        for (CellIndex cell = range.first; cell < range.end;) {
            unsigned __int128 sum = 0;
            CellIndex next = cell;
            while (next < range.end && view_.rates[next] != 0)
                sum += view_.rates[next++];
            if (next > cell && wishes_.size() < rules_.max_pieces) {
                const Piece piece{offer_.layers()[layer].layer, cell - offer_.first_cell(layer), next - cell};
                wishes_.push_back({piece, static_cast<Rate>(sum / piece.count)});
            }
            cell = std::max(next, cell + 1);
        }
    }

    const View& view_;
    const Offer& offer_;
    const Rules& rules_;
    std::uint64_t seed_;
    std::uint64_t smallest_ = 0;
    std::size_t group_ = 1;  // experts
    int highest_ = 0;
    bool any_missing_ = false;
    Room total_;
    Room left_;
    std::vector<LayerBlocks> blocks_;
    std::vector<KeptGroup> kept_;                         // best first
    std::set<std::pair<int, std::size_t>> ranges_taken_;  // level, block
    std::vector<Wish> wishes_;
};

}  // namespace

std::vector<Wish> choose(const View& view, const Budget& budget, std::span<const Piece> kept, const Rules& rules,
                         std::uint64_t seed) {
    return Chooser(view, budget, rules, mixed(seed)).run(kept);
}

}  // namespace kvasir::market
