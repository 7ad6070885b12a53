#include "worker/cores.h"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <set>
#include <string>

namespace kvasir {

namespace {

// What a processor's hyper-thread siblings have in common; empty where the system does not tell.
std::string core_name(int processor) {
    const std::string path = fmt::format("/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", processor);
    std::string siblings;
    std::getline(std::ifstream(path) >> std::ws, siblings);
    return siblings.empty() ? std::to_string(processor) : siblings;
}

}  // namespace

std::vector<int> physical_cores() {
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return {0};
    std::set<std::string> seen;
    std::vector<int> cores;
    for (int processor = 0; processor < CPU_SETSIZE; ++processor) {
        if (CPU_ISSET(processor, &allowed) && seen.insert(core_name(processor)).second) cores.push_back(processor);
    }
    return cores.empty() ? std::vector<int>{0} : cores;
}

Status pin_to_cores(int count) {
    std::vector<int> cores = physical_cores();
    if (count < 1) return fail(ErrorKind::usage, "{} cores to stay on", count);
    cores.resize(std::min(cores.size(), static_cast<std::size_t>(count)));
    cpu_set_t chosen;
    CPU_ZERO(&chosen);
    for (int core : cores)
        CPU_SET(core, &chosen);
    if (sched_setaffinity(0, sizeof chosen, &chosen) == 0) return {};
    return fail(ErrorKind::io, "cannot stay on {} cores: {}", cores.size(), std::strerror(errno));
}

}  // namespace kvasir
