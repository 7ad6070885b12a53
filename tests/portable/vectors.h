// The test vectors of docs/portable-vectors, computed by the reference: file name → contents.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>

namespace kvasir::portable::test {

std::map<std::string, nlohmann::ordered_json> make_vectors();

// As the files hold it: one case a line.
std::string text_of(const nlohmann::ordered_json& file);

}  // namespace kvasir::portable::test
