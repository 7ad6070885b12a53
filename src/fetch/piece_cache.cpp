#include "fetch/piece_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "base/units.h"
#include "fetch/part_file.h"

namespace kvasir::fetch {
namespace {

constexpr std::string_view kLock = ".kvasir-pieces.lock";
constexpr std::string_view kSuffix = ".gguf";
constexpr std::string_view kManifestSuffix = ".kvasir.json";

tl::unexpected<Error> fail_errno(const std::filesystem::path& path, std::string_view action) {
    return fail(ErrorKind::io, "{}: cannot {}: {}", path.string(), action, std::strerror(errno));
}

std::string file_name(const Piece& piece) {
    return fmt::format("{}-{}-{}{}", piece.layer, piece.first, piece.count, kSuffix);
}

// "3-16-8.gguf" → layer 3, 8 experts from 16 on. Exactly what file_name() makes.
std::optional<Piece> piece_of(const std::string& name) {
    Piece piece;
    const char* at = name.data();
    const char* end = name.data() + name.size();
    for (std::uint32_t* number : {&piece.layer, &piece.first, &piece.count}) {
        const auto [next, error] = std::from_chars(at, end, *number);
        if (error != std::errc{}) return std::nullopt;
        at = next < end && *next == '-' ? next + 1 : next;
    }
    if (piece.count == 0 || file_name(piece) != name) return std::nullopt;
    return piece;
}

struct Found {
    CachedPiece cached;
    timespec used{};
};

std::uint64_t disk_bytes(const struct stat& status) {
    return static_cast<std::uint64_t>(status.st_blocks) * 512;
}

// A piece's file, or what a download of it has left; both at once only where a damaged one is being replaced.
void add_piece(const std::filesystem::path& path, const Digest& model, const Piece& piece, std::vector<Found>& found) {
    Found entry{{path, model, piece, 0, false}, {}};
    struct stat status {};
    bool any = false;
    if (::lstat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode)) {
        entry.cached.bytes += static_cast<std::uint64_t>(status.st_size);
        entry.cached.complete = true;
        entry.used = status.st_mtim;
        any = true;
    }
    for (const std::filesystem::path& part : {part_path(path), journal_path(path)}) {
        if (::lstat(part.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) continue;
        entry.cached.bytes += disk_bytes(status);
        if (!any) entry.used = status.st_mtim;
        any = true;
    }
    if (any) found.push_back(std::move(entry));
}

void delete_piece(const CachedPiece& piece) {
    for (const std::filesystem::path& path : {piece.path, part_path(piece.path), journal_path(piece.path)})
        ::unlink(path.c_str());
}

// The name of the piece that a file belongs to: of "x.part.journal" and "x.part" too.
std::string without_part(std::string name) {
    for (const std::string_view suffix : {".journal", ".part"}) {
        if (name.ends_with(suffix)) name.resize(name.size() - suffix.size());
    }
    return name;
}

bool is_leased(const CachedPiece& cached, const Digest& model, const std::vector<Piece>& leased) {
    return cached.model == model && std::ranges::find(leased, cached.piece) != leased.end();
}

}  // namespace

Result<PieceCache> PieceCache::open(const std::filesystem::path& directory, std::uint64_t quota) {
    std::error_code error;
    std::filesystem::create_directories(directory, error);
    if (error) return fail(ErrorKind::io, "{}: cannot make the directory: {}", directory.string(), error.message());
    PieceCache cache;
    cache.directory_ = directory;
    cache.quota_ = quota;
    const std::filesystem::path lock = directory / kLock;
    cache.lock_ = File(::open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666));
    if (cache.lock_.descriptor() < 0) return fail_errno(lock, "create");
    if (::flock(cache.lock_.descriptor(), LOCK_EX | LOCK_NB) == 0) return cache;
    if (errno != EWOULDBLOCK) return fail_errno(lock, "lock");
    return fail(ErrorKind::unavailable, "{}: another process uses this directory; give each node its own",
                directory.string());
}

std::filesystem::path PieceCache::path_of(const Digest& model, const Piece& piece) const {
    return directory_ / to_hex(model) / file_name(piece);
}

Result<std::vector<CachedPiece>> PieceCache::list() const {
    std::vector<Found> found;
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(directory_, error)) {
        const Result<Digest> model = digest_from_hex(entry.path().filename().string());
        if (!model || entry.symlink_status(error).type() != std::filesystem::file_type::directory) continue;
        std::vector<std::string> names;
        for (const auto& file : std::filesystem::directory_iterator(entry.path(), error))
            names.push_back(without_part(file.path().filename().string()));
        std::ranges::sort(names);
        names.erase(std::unique(names.begin(), names.end()), names.end());
        for (const std::string& name : names) {
            if (const auto piece = piece_of(name)) add_piece(entry.path() / name, *model, *piece, found);
        }
    }
    if (error) return fail(ErrorKind::io, "{}: cannot be read: {}", directory_.string(), error.message());
    std::ranges::sort(found, {}, [](const Found& one) {
        return std::tuple(one.used.tv_sec, one.used.tv_nsec, one.cached.path.string());
    });
    std::vector<CachedPiece> pieces;
    for (Found& one : found)
        pieces.push_back(std::move(one.cached));
    return pieces;
}

Status PieceCache::make_room(std::uint64_t size, const std::filesystem::path& wanted, const Digest& model,
                             const std::vector<Piece>& leased) {
    if (quota_ == 0) return {};
    Result<std::vector<CachedPiece>> all = list();
    if (!all) return fail(all.error());
    std::uint64_t held = 0;
    std::uint64_t fixed = 0;
    for (const CachedPiece& cached : *all) {
        if (cached.path == wanted) continue;  // becomes part of `size`
        held += cached.bytes;
        if (is_leased(cached, model, leased)) fixed += cached.bytes;
    }
    if (fixed + size > quota_) {
        return fail(ErrorKind::io, "{}: {} more would be {} in all, the quota is {}", directory_.string(),
                    human_bytes(size), human_bytes(fixed + size), human_bytes(quota_));
    }
    for (const CachedPiece& cached : *all) {
        if (held + size <= quota_) break;
        if (cached.path == wanted || is_leased(cached, model, leased)) continue;
        delete_piece(cached);
        held -= cached.bytes;
    }
    return {};
}

Result<PieceCache::Fetched> PieceCache::ensure(const Manifest& manifest, const Piece& piece,
                                               const std::vector<Piece>& leased, const std::vector<Source>& sources,
                                               const FetchOptions& options) {
    const Digest model = manifest.model_id();
    Fetched fetched{path_of(model, piece), {}};
    Result<FetchPlan> plan = make_plan(manifest, {piece});
    if (!plan) return fail(plan.error());
    if (Status room = make_room(plan->size, fetched.path, model, leased); !room) return fail(room.error());
    std::error_code error;
    std::filesystem::create_directories(fetched.path.parent_path(), error);
    if (error) {
        return fail(ErrorKind::io, "{}: cannot make the directory: {}", fetched.path.parent_path().string(),
                    error.message());
    }
    Result<FetchReport> report = fetch_slice(manifest, {piece}, sources, fetched.path, options);
    if (!report) return fail(report.error());
    fetched.report = std::move(*report);
    // Its modification time says when it was last asked for.
    ::utimensat(AT_FDCWD, fetched.path.c_str(), nullptr, 0);
    return fetched;
}

Result<std::uint64_t> PieceCache::evict(const Digest& model, const std::vector<Piece>& leased) {
    Result<std::vector<CachedPiece>> all = list();
    if (!all) return fail(all.error());
    std::uint64_t freed = 0;
    for (const CachedPiece& cached : *all) {
        if (is_leased(cached, model, leased)) continue;
        delete_piece(cached);
        freed += cached.bytes;
    }
    return freed;
}

std::optional<Manifest> PieceCache::kept_manifest(const Digest& id) const {
    Result<Manifest> manifest = load_manifest(directory_ / (to_hex(id) + std::string(kManifestSuffix)));
    if (!manifest || manifest->model_id() != id) return std::nullopt;
    return std::move(*manifest);
}

Status PieceCache::keep(const Manifest& manifest) const {
    return write_text_file(directory_ / (to_hex(manifest.model_id()) + std::string(kManifestSuffix)),
                           to_json(manifest));
}

}  // namespace kvasir::fetch
