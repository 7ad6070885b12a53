// The models that a hub publishes: manifests, and the files behind them where it has them.
#pragma once

#include <atomic>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "gguf/manifest.h"
#include "http/file_response.h"

namespace kvasir::hub {

struct PublishedFile {
    http::FileContent content;
    std::int64_t changed_ns = 0;  // the file's modification time when it was published
};

struct PublishedModel {
    Digest id{};
    Manifest manifest;
    std::shared_ptr<const std::string> json;  // the manifest as it is sent
    std::string etag;                         // of `json`
    std::vector<PublishedFile> files;         // as in the manifest; empty: its mirrors have the bytes, not this hub
};

struct PublishSettings {
    std::vector<std::string> mirrors;           // added to those the manifest names
    std::filesystem::path manifests;            // where a manifest goes that has to be made; empty: beside its model
    const std::atomic<bool>* cancel = nullptr;  // when set by anybody: hashing ends with ErrorKind::unavailable
};

// Filled before it serves; thread-safe from then on.
class Catalogue {
  public:
    // A GGUF model (any file of a split one), hashed first if it has no manifest yet; or a manifest alone ("….json"),
    // which must name mirrors. The model's files must be those of the manifest. ErrorKind::usage where a model is there
    // already.
    Status add(const std::filesystem::path& path, const PublishSettings& settings);

    const std::vector<PublishedModel>& models() const { return models_; }
    const PublishedModel* find(const Digest& id) const;
    // What GET /v1/models answers.
    std::string to_json() const;

  private:
    std::vector<PublishedModel> models_;
};

}  // namespace kvasir::hub
