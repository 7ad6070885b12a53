// Models for the tests of manifests and slices: opened, mapped, and published.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/files.h"
#include "base/temp_directory.h"
#include "gguf/expert_map.h"
#include "gguf/gguf_builder.h"
#include "gguf/manifest.h"

namespace kvasir::testing {

// The bundled model.
std::filesystem::path real_model();

struct OpenModel {
    GgufModel model;
    ExpertMap map;
    std::vector<MappedFile> files;

    explicit OpenModel(const std::filesystem::path& path);
    // One expert's bytes, straight from the file.
    ByteSpan slab(std::uint32_t layer, Role role, std::uint32_t expert) const;
    Manifest publish(int threads = 2) const;
};

// A directory of its own for every test.
class DirectoryTest : public ::testing::Test {
  protected:
    std::filesystem::path path(std::string_view name) const { return directory_.path() / name; }
    std::filesystem::path write_tiny(std::string_view name, const TinyMoe& sizes = {}) const;
    // A two-layer model as two splits; returns the second's path.
    std::filesystem::path write_tiny_split() const;
    std::vector<std::string> list() const;

  private:
    TempDirectory directory_ = std::move(*TempDirectory::create("kvasir-gguf-test-"));
};

// Flips one bit of a file.
void flip_bit(const std::filesystem::path& path, std::uint64_t offset);
ByteVector read_bytes(const std::filesystem::path& path);

}  // namespace kvasir::testing
