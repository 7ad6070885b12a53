#include "base/result.h"

namespace kvasir {

int exit_code(ErrorKind kind) {
    switch (kind) {
        case ErrorKind::mismatch:
            return 1;
        case ErrorKind::usage:
            return 2;
        case ErrorKind::invalid:
        case ErrorKind::unsupported:
            return 3;
        case ErrorKind::unavailable:
        case ErrorKind::io:
            return 4;
        case ErrorKind::internal:
            break;
    }
    return 70;  // EX_SOFTWARE
}

}  // namespace kvasir
