// One range request: what a source must answer, and what becomes of the bytes.
#pragma once

#include <functional>
#include <optional>

#include "fetch/part_file.h"
#include "fetch/slab_queue.h"
#include "http/client.h"

namespace kvasir::fetch {

struct Outcome {
    enum class Kind {
        complete,  // every slab of the stretch is there and right
        retry,     // the source may do better later, or another one now
        leftover,  // what an earlier run or another source left of a slab was wrong: nobody's fault, ask again
        liar,      // the source is not to be asked again
        fatal,     // of our own: no space, interrupted
    };
    Kind kind = Kind::complete;
    Error error = {};
    std::optional<std::chrono::seconds> pause = {};  // the source asked for so much
};

// What the transfer tells of while it runs; called on its own thread.
class TransferEvents {
  public:
    virtual ~TransferEvents() = default;
    // So much of the slab is in the file (all of it: and its hash is right); 0: what was there was wrong.
    virtual Status arrived(std::size_t slab, std::uint64_t bytes) = 0;
    // Bytes that a source has sent.
    virtual void moved(std::uint64_t bytes) = 0;
    // Whether what has arrived of the slab before came from the source that is asked now.
    virtual bool same_origin(std::size_t slab) const = 0;
};

// Asks `url`, a file of `file_size` bytes, for the stretch; hashes and writes what comes, slab by slab. `had` is how
// much of the first slab is in the part file.
Outcome transfer(http::Client& client, const http::Url& url, const FetchPlan& plan, const Stretch& stretch,
                 std::uint64_t had, const PartFile& part, TransferEvents& events);

}  // namespace kvasir::fetch
