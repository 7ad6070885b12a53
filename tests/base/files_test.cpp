#include "base/files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "base/temp_directory.h"

namespace kvasir {
namespace {

using testing::HasSubstr;

class FilesTest : public testing::Test {
  protected:
    std::filesystem::path in(const std::string& name) const { return directory_.path() / name; }
    std::size_t entries() const {
        return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(directory_.path()), {}));
    }
    static ByteSpan bytes(std::string_view text) { return std::as_bytes(std::span(text)); }

    TempDirectory directory_ = TempDirectory::create("kvasir-files-").value();
};

TEST_F(FilesTest, WrittenTextIsReadBack) {
    ASSERT_TRUE(write_text_file(in("a"), "hello"));
    EXPECT_EQ(read_text_file(in("a"), 5).value(), "hello");
    EXPECT_EQ(read_text_file(in("a"), 4).error().kind, ErrorKind::invalid);
}

TEST_F(FilesTest, NothingAppearsWithoutCommit) {
    {
        Result<AtomicFile> file = AtomicFile::create(in("a"));
        ASSERT_TRUE(file);
        ASSERT_TRUE(file->append(bytes("half")));
        EXPECT_EQ(read_text_file(file->contents_path(), 4).value(), "half");
        EXPECT_FALSE(std::filesystem::exists(in("a")));
    }
    EXPECT_EQ(entries(), 0U);
}

TEST_F(FilesTest, CommitNewNeverReplaces) {
    for (bool first : {true, false}) {
        Result<AtomicFile> file = AtomicFile::create(in("a"));
        ASSERT_TRUE(file->append(bytes(first ? "one" : "two")));
        EXPECT_EQ(file->commit_new().value(), first);
    }
    EXPECT_EQ(read_text_file(in("a"), 100).value(), "one");
    EXPECT_EQ(entries(), 1U);
}

TEST_F(FilesTest, CommitReplacesTheOldFileWhole) {
    ASSERT_TRUE(write_text_file(in("a"), "a longer old text"));
    ASSERT_TRUE(write_text_file(in("a"), "new"));
    EXPECT_EQ(read_text_file(in("a"), 100).value(), "new");
    EXPECT_EQ(entries(), 1U);
}

TEST_F(FilesTest, WhatIsNotARegularFileIsRefused) {
    EXPECT_EQ(AtomicFile::create(directory_.path()).error().kind, ErrorKind::usage);
    EXPECT_EQ(File::open(directory_.path()).error().kind, ErrorKind::usage);
    ASSERT_EQ(::mkfifo(in("pipe").c_str(), 0600), 0);
    EXPECT_THAT(File::open(in("pipe")).error().message, HasSubstr("pipe"));
    EXPECT_EQ(AtomicFile::create(in("no/such")).error().kind, ErrorKind::io);
    EXPECT_EQ(File::open(in("missing")).error().kind, ErrorKind::io);
}

TEST_F(FilesTest, RangesAreCopiedByteForByte) {
    std::string text;
    for (int i = 0; i < 200000; ++i)
        text += static_cast<char>(i * 31 % 251);
    ASSERT_TRUE(write_text_file(in("source"), text));
    File source = File::open(in("source")).value();
    Result<AtomicFile> copy = AtomicFile::create(in("copy"));
    ASSERT_TRUE(copy->append(bytes("abc")));
    ASSERT_TRUE(copy->pad_to(32));
    ASSERT_TRUE(copy->append_from(source, 777, 150001));
    EXPECT_EQ(copy->size(), 32U + 150001U);
    ASSERT_TRUE(copy->commit());
    std::string expected = "abc" + std::string(29, '\0') + text.substr(777, 150001);
    EXPECT_EQ(read_text_file(in("copy"), 1 << 20).value(), expected);
}

TEST_F(FilesTest, ACopyPastTheEndFailsAndLeavesNothing) {
    ASSERT_TRUE(write_text_file(in("source"), "0123456789"));
    File source = File::open(in("source")).value();
    {
        Result<AtomicFile> copy = AtomicFile::create(in("copy"));
        Status status = copy->append_from(source, 5, 6);
        ASSERT_FALSE(status);
        EXPECT_EQ(status.error().kind, ErrorKind::invalid);
    }
    EXPECT_EQ(entries(), 1U);
}

TEST_F(FilesTest, ReadsBeyondTheEndSayWhere) {
    ASSERT_TRUE(write_text_file(in("a"), "0123456789"));
    File file = File::open(in("a")).value();
    ByteVector buffer(4);
    EXPECT_TRUE(file.read_at(6, buffer));
    Status status = file.read_at(8, buffer);
    ASSERT_FALSE(status);
    EXPECT_THAT(status.error().message, HasSubstr("ends at byte 10, 2 more"));
}

TEST_F(FilesTest, MapsEvenAnEmptyFile) {
    ASSERT_TRUE(write_text_file(in("empty"), ""));
    EXPECT_EQ(MappedFile::open(in("empty"))->bytes().size(), 0U);
    ASSERT_TRUE(write_text_file(in("a"), "xyz"));
    Result<MappedFile> mapped = MappedFile::open(in("a"));
    EXPECT_EQ(mapped->bytes()[2], std::byte{'z'});
}

TEST(TempDirectoryTest, GoesWithItsOwner) {
    std::filesystem::path path;
    {
        TempDirectory directory = TempDirectory::create("kvasir-temp-").value();
        path = directory.path();
        ASSERT_TRUE(write_text_file(path / "file", "text"));
    }
    EXPECT_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace kvasir
