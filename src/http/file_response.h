// A file, or the range of it that was asked for, as an answer: 200, 206, 304, 416.
#pragma once

#include "http/message.h"

namespace kvasir::http {

struct FileContent {
    std::shared_ptr<const File> file;
    std::uint64_t size = 0;
    std::string etag;  // strong, with its quotes: it changes whenever a byte does
    std::string content_type = "application/octet-stream";
};

// Answers GET and HEAD: one range, If-Range and If-None-Match by entity tag.
Response file_response(const Request& request, const FileContent& content);

// The same for text in memory, whole only.
Response text_response(const Request& request, const std::shared_ptr<const std::string>& text, const std::string& etag,
                       const std::string& content_type);

}  // namespace kvasir::http
