// What a benchmark found: named figures, for people and for scripts.
#pragma once

#include <string>
#include <vector>

namespace kvasir {

struct Figure {
    std::string key;    // for scripts: "ratio_to_stock"
    std::string label;  // for people: "Kvasir without workers / stock"
    double value = 0;
    std::string unit;     // "GB/s", "us", "x"; empty for a plain number
    std::string comment;  // a target, a spread; may be empty
};

struct BenchReport {
    std::string title;
    std::vector<Figure> figures;
    std::vector<std::string> notes;

    void add(std::string key, std::string label, double value, std::string unit, std::string comment = {});
};

std::string table(const BenchReport& report);
std::string to_json(const BenchReport& report);

// The p-quantile (0–1) of `values`, by nearest rank; 0 where there are none.
double quantile(std::vector<double> values, double p);

}  // namespace kvasir
