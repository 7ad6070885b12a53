// portable_vectors DIRECTORY: writes the test vectors there.
#include <fmt/format.h>

#include <filesystem>
#include <fstream>

#include "portable/vectors.h"

int main(int count, char** arguments) {
    if (count != 2) {
        fmt::print(stderr, "usage: portable_vectors DIRECTORY\n");
        return 2;
    }
    for (const auto& [name, file] : kvasir::portable::test::make_vectors()) {
        std::ofstream out(std::filesystem::path(arguments[1]) / name, std::ios::binary);
        out << kvasir::portable::test::text_of(file);
        if (!out.flush()) {
            fmt::print(stderr, "portable_vectors: cannot write {}\n", name);
            return 4;
        }
    }
    return 0;
}
