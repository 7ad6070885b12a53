#include "market/records.h"

namespace kvasir::market {

const char* name(LeaseEnd end) {
    switch (end) {
        case LeaseEnd::live:
            return "live";
        case LeaseEnd::replaced:
            return "replaced";
        case LeaseEnd::released:
            return "released";
        case LeaseEnd::expired:
            return "expired";
        case LeaseEnd::unproved:
            return "unproved";
        case LeaseEnd::convicted:
            return "convicted";
        case LeaseEnd::revoked:
            return "revoked";
    }
    return "unknown";
}

}  // namespace kvasir::market
