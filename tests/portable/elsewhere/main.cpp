// portable_bits DIRECTORY: holds the reference and all kernels that this machine can run against the vectors in
// DIRECTORY and, on random inputs, against each other. Says what failed, then what ran, a digest of the reference's
// bits (the same from every compiler, on every machine) and how many checks passed and failed.
#include <cstdio>

#include "portable/elsewhere/checks.h"

namespace kvasir::portable::test {

void Score::count(bool passed, std::string_view what) {
    ++(passed ? passed_ : failed_);
    if (!passed) std::printf("FAILED %.*s\n", static_cast<int>(what.size()), what.data());
}

}  // namespace kvasir::portable::test

int main(int count, char** arguments) {
    using namespace kvasir::portable::test;
    if (count != 2) {
        std::fprintf(stderr, "usage: portable_bits DIRECTORY\n");
        return 2;
    }
    Score score;
    const std::vector<Implementation> all = all_implementations();
    std::string names;
    for (const Implementation& implementation : all) {
        check_vectors(arguments[1], implementation, score);
        names += " " + implementation.name();
    }
    const std::uint64_t digest = check_random(all, score);
    std::printf("ran%s\ndigest %016llx\n%zu passed, %zu failed\n", names.c_str(),
                static_cast<unsigned long long>(digest), score.passed(), score.failed());
    return score.failed() == 0 ? 0 : 1;
}
