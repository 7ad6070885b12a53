#include "base/logging.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <memory>

namespace kvasir {

void log_to_stderr(LogLevel level) {
    auto sink = std::make_shared<spdlog::sinks::stderr_color_sink_mt>();
    auto logger = std::make_shared<spdlog::logger>("kvasir", sink);
    logger->set_level(level == LogLevel::errors ? spdlog::level::err : spdlog::level::warn);
    logger->set_pattern("kvasir: %l: %v");
    spdlog::set_default_logger(std::move(logger));
}

}  // namespace kvasir
