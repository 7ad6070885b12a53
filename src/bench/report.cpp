#include "bench/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace kvasir {
namespace {

std::string digits(double value) {
    double size = std::abs(value);
    return fmt::format("{:.{}f}", value, size >= 100 ? 0 : size >= 10 ? 1 : size >= 0.1 ? 3 : 4);
}

}  // namespace

void BenchReport::add(std::string key, std::string label, double value, std::string unit, std::string comment) {
    figures.push_back({std::move(key), std::move(label), value, std::move(unit), std::move(comment)});
}

std::string table(const BenchReport& report) {
    std::size_t width = 0;
    for (const Figure& figure : report.figures)
        width = std::max(width, figure.label.size());
    std::string text = report.title + "\n";
    for (const Figure& figure : report.figures) {
        text += fmt::format("  {:<{}}  {:>10} {:<8}{}\n", figure.label, width, digits(figure.value), figure.unit,
                            figure.comment.empty() ? "" : "  " + figure.comment);
    }
    for (const std::string& note : report.notes)
        text += "  " + note + "\n";
    return text;
}

std::string to_json(const BenchReport& report) {
    nlohmann::ordered_json json;
    json["title"] = report.title;
    for (const Figure& figure : report.figures)
        json[figure.key] = figure.value;
    return json.dump(2);
}

double quantile(std::vector<double> values, double p) {
    if (values.empty()) return 0;
    std::sort(values.begin(), values.end());
    auto rank = static_cast<std::size_t>(std::ceil(p * static_cast<double>(values.size())));
    return values[std::clamp<std::size_t>(rank, 1, values.size()) - 1];
}

}  // namespace kvasir
