// The expert output rows of one decode call, in the order they were computed: what two runs are compared by.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

namespace kvasir {

struct LayerRows {
    std::uint32_t hidden = 0;
    std::vector<float> values;  // [rows][hidden]; token by token, each in the order of its selected experts

    std::size_t rows() const { return hidden == 0 ? 0 : values.size() / hidden; }
};

// By layer. Not thread-safe.
class ExpertRecord {
  public:
    void clear() {
        for (auto& [layer, rows] : layers_)
            rows.values.clear();
    }
    void add(std::uint32_t layer, std::uint32_t hidden, std::span<const float> values) {
        LayerRows& rows = layers_[layer];
        rows.hidden = hidden;
        rows.values.insert(rows.values.end(), values.begin(), values.end());
    }
    // Takes the last `count` values of a layer back: they turned out not to be the last step of their expert group.
    void remove_last(std::uint32_t layer, std::size_t count) {
        LayerRows& rows = layers_[layer];
        rows.values.resize(rows.values.size() - std::min(count, rows.values.size()));
    }
    const std::map<std::uint32_t, LayerRows>& layers() const { return layers_; }

  private:
    std::map<std::uint32_t, LayerRows> layers_;
};

}  // namespace kvasir
