#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "backbone/open_backbone.h"
#include "base/units.h"
#include "verify/text_table.h"
#include "verify/verify.h"

namespace kvasir {
namespace {

using nlohmann::json;

std::string verdict(std::uint64_t count, std::uint64_t different) {
    if (different == 0) return human_count(count) + " identical";
    return fmt::format("{} of {} DIFFER", human_count(different), human_count(count));
}

std::string figure(double value) {
    return value == 0 ? "0" : fmt::format("{:.3g}", value);
}

std::string percent(std::uint64_t part, std::uint64_t whole) {
    return whole == 0 ? "-" : fmt::format("{:.2f} %", 100.0 * static_cast<double>(part) / static_cast<double>(whole));
}

std::vector<std::string> comparison_row(const std::string& name, const std::string& pass, const Comparison& c) {
    return {name,
            pass,
            verdict(c.positions, c.positions_different),
            verdict(c.rows, c.rows_different),
            figure(c.max_abs),
            figure(c.kl_max),
            figure(c.kl_mean()),
            percent(c.top1_equal, c.positions),
            c.min_cosine == 1 ? "1" : fmt::format("{:.8f}", c.min_cosine)};
}

std::string placement(const VerifyReport& report) {
    const SwarmStats& swarm = *report.swarm;
    std::vector<std::vector<std::string>> rows{{"expert pairs computed by", "pairs", "share"}};
    for (const WorkerStatus& worker : swarm.workers) {
        rows.push_back({fmt::format("worker {} ({})", worker.endpoint.address.text(), state_name(worker.state)),
                        human_count(worker.pairs), percent(worker.pairs, report.pairs)});
    }
    rows.push_back({"this process", human_count(swarm.pairs_local), percent(swarm.pairs_local, report.pairs)});
    rows.push_back({"hedged (asked of a worker, answered elsewhere)", human_count(swarm.pairs_hedged),
                    percent(swarm.pairs_hedged, report.pairs)});
    return text_table(rows) +
           fmt::format("  sent {}, received {}\n", human_bytes(swarm.bytes_sent), human_bytes(swarm.bytes_received));
}

std::string notes(const VerifyReport& report) {
    std::string text;
    for (const VerifyPass& pass : report.passes) {
        const Comparison& local = pass.local_to_stock;
        if (local.positions_not_finite > 0) {
            text += fmt::format("  note: {} of {} positions {} have logits that are not finite, in stock llama.cpp\n",
                                local.positions_not_finite, local.positions, pass.name);
        }
        if (!local.layers_unseen.empty()) {
            text += fmt::format("  note: layers {} were left to llama.cpp {}: their experts were not compared\n",
                                fmt::join(local.layers_unseen, ","), pass.name);
        }
        const bool like_stock = report.arithmetic == Arithmetic::ggml_cpu;
        const std::vector<const Comparison*> all{like_stock ? &local : nullptr,
                                                 like_stock && pass.swarm_to_stock ? &*pass.swarm_to_stock : nullptr,
                                                 pass.swarm_to_local ? &*pass.swarm_to_local : nullptr};
        for (const Comparison* comparison : all) {
            if (comparison == nullptr || !comparison->first_difference) continue;
            text += fmt::format("  first difference {}: {}\n", pass.name, *comparison->first_difference);
        }
    }
    return text;
}

// How far stock llama.cpp and the backbone are from exact experts, and how far stock is from itself.
std::string faithfulness(const VerifyReport& report) {
    if (report.exact.tokens == 0) return {};
    const VerifyPass& pass = report.passes.front();
    const std::string_view name = short_name(report.arithmetic);
    std::string text = fmt::format(
        "  against experts computed in f64: KL mean {} stock, {} {}; perplexity {:.5f} exact, {:.5f} stock, {:.5f} "
        "{}\n",
        figure(pass.stock_to_exact->kl_mean()), figure(pass.local_to_exact->kl_mean()), name, report.exact.perplexity(),
        report.stock.perplexity(), report.local.perplexity(), name);
    if (!pass.repacked_to_stock) {
        return text + "  stock with repacked weights was left out: it would take the model's size in memory\n";
    }
    return text + fmt::format("  against stock: KL mean {} {}, {} stock itself with its weights repacked\n",
                              figure(pass.local_to_stock.kl_mean()), name, figure(pass.repacked_to_stock->kl_mean()));
}

std::string conclusion(const VerifyReport& report) {
    if (!report.identical()) return "identical: NO\n";
    if (report.arithmetic == Arithmetic::ggml_cpu) {
        return "identical: yes, every logit and every expert output row, bit for bit\n";
    }
    if (report.swarm) {
        return fmt::format(
            "identical: yes, with and without workers, every logit and every expert output row, bit for "
            "bit ({})\n",
            wire_name(report.arithmetic));
    }
    return fmt::format(
        "nothing was compared bit for bit: {} differs from stock llama.cpp in the last digits, and there "
        "are no workers (--arithmetic ggml-cpu compares with stock)\n",
        wire_name(report.arithmetic));
}

// JSON has no infinity.
json number(double value) {
    return std::isfinite(value) ? json(value) : json("infinite");
}

json comparison_json(const Comparison& c) {
    json object{{"identical", c.identical()},
                {"positions", c.positions},
                {"positions_different", c.positions_different},
                {"positions_not_finite", c.positions_not_finite},
                {"top1_equal", c.top1_equal},
                {"max_abs_difference", number(c.max_abs)},
                {"kl_max", number(c.kl_max)},
                {"kl_mean", number(c.kl_mean())},
                {"min_cosine", number(c.min_cosine)},
                {"expert_rows", c.rows},
                {"expert_rows_different", c.rows_different},
                {"expert_rows_max_abs_difference", number(c.row_max_abs)},
                {"layers_not_compared", c.layers_unseen}};
    if (c.first_difference) object["first_difference"] = *c.first_difference;
    return object;
}

json swarm_json(const SwarmStats& swarm) {
    json workers = json::array();
    for (const WorkerStatus& worker : swarm.workers) {
        workers.push_back({{"address", worker.endpoint.address.text()},
                           {"state", state_name(worker.state)},
                           {"experts_held", worker.experts_held},
                           {"pairs", worker.pairs},
                           {"failures", worker.failures},
                           {"audits_passed", worker.audits}});
    }
    return {{"pairs_local", swarm.pairs_local},       {"pairs_remote", swarm.pairs_remote},
            {"pairs_hedged", swarm.pairs_hedged},     {"bytes_sent", swarm.bytes_sent},
            {"bytes_received", swarm.bytes_received}, {"workers", workers}};
}

}  // namespace

std::string table(const VerifyReport& report) {
    std::string text =
        fmt::format("{} ({}): {} layers with experts, top-{}\n{}: {} tokens, in windows of at most {}; {} threads\n\n",
                    report.model_name, report.architecture, report.expert_layers, report.experts_used, report.text,
                    human_count(report.tokens), report.window, report.threads);
    std::vector<std::vector<std::string>> rows{
        {"compared", "how", "logits", "expert output rows", "max diff", "KL max", "KL mean", "top-1", "min cosine"}};
    for (const VerifyPass& pass : report.passes) {
        rows.push_back(comparison_row("no workers / stock", pass.name, pass.local_to_stock));
        if (pass.swarm_to_stock) rows.push_back(comparison_row("workers / stock", pass.name, *pass.swarm_to_stock));
        if (pass.swarm_to_local)
            rows.push_back(comparison_row("workers / no workers", pass.name, *pass.swarm_to_local));
        if (pass.stock_to_exact) rows.push_back(comparison_row("stock / exact", pass.name, *pass.stock_to_exact));
        if (pass.local_to_exact) rows.push_back(comparison_row("no workers / exact", pass.name, *pass.local_to_exact));
        if (pass.repacked_to_stock) {
            rows.push_back(comparison_row("stock repacked / stock", pass.name, *pass.repacked_to_stock));
        }
    }
    text += text_table(rows) + "\n";
    if (report.swarm) text += placement(report) + "\n";
    text += notes(report);
    text += fmt::format("  computing took {} stock, {} without workers{}\n", human_seconds(report.seconds_stock),
                        human_seconds(report.seconds_local),
                        report.swarm ? ", " + human_seconds(report.seconds_swarm) + " with workers" : "");
    return text + faithfulness(report) + conclusion(report);
}

std::string to_json(const VerifyReport& report) {
    json passes = json::array();
    for (const VerifyPass& pass : report.passes) {
        json object{{"pass", pass.name}, {"local_to_stock", comparison_json(pass.local_to_stock)}};
        if (pass.swarm_to_stock) object["swarm_to_stock"] = comparison_json(*pass.swarm_to_stock);
        if (pass.swarm_to_local) object["swarm_to_local"] = comparison_json(*pass.swarm_to_local);
        if (pass.stock_to_exact) object["stock_to_exact"] = comparison_json(*pass.stock_to_exact);
        if (pass.local_to_exact) object["local_to_exact"] = comparison_json(*pass.local_to_exact);
        if (pass.repacked_to_stock) object["repacked_to_stock"] = comparison_json(*pass.repacked_to_stock);
        passes.push_back(std::move(object));
    }
    json object{{"arithmetic", wire_name(report.arithmetic)},
                {"identical", report.identical()},
                {"logits_identical", report.logits_identical()},
                {"expert_outputs_identical", report.expert_outputs_identical()},
                {"model", report.model_name},
                {"architecture", report.architecture},
                {"text", report.text},
                {"tokens", report.tokens},
                {"window", report.window},
                {"threads", report.threads},
                {"expert_layers", report.expert_layers},
                {"experts_used", report.experts_used},
                {"passes", passes},
                {"seconds", {{"stock", report.seconds_stock}, {"local", report.seconds_local}}}};
    if (report.exact.tokens > 0) {
        object["perplexity"] = {{"exact", report.exact.perplexity()},
                                {"stock", report.stock.perplexity()},
                                {"local", report.local.perplexity()}};
        if (report.repacked.tokens > 0) object["perplexity"]["stock_repacked"] = report.repacked.perplexity();
    }
    if (report.swarm) {
        object["pairs"] = {{"total", report.pairs},
                           {"local", report.swarm->pairs_local},
                           {"remote", report.swarm->pairs_remote},
                           {"hedged", report.swarm->pairs_hedged}};
        object["swarm"] = swarm_json(*report.swarm);
        object["seconds"]["swarm"] = report.seconds_swarm;
    }
    return object.dump(2) + "\n";
}

}  // namespace kvasir
