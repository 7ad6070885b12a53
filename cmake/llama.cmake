# Imported targets of the llama.cpp build that scripts/setup.sh prepared: llama::ggml, llama::llama, llama::server.
if(NOT KVASIR_LLAMA_DIR)
    set(setup ${CMAKE_SOURCE_DIR}/scripts/setup.sh)
    if(KVASIR_LLAMA_SOURCE)
        list(APPEND setup --llama-source ${KVASIR_LLAMA_SOURCE})
    endif()
    execute_process(COMMAND ${setup} --print-llama-dir OUTPUT_VARIABLE llama_dir OUTPUT_STRIP_TRAILING_WHITESPACE
                    COMMAND_ERROR_IS_FATAL ANY)
else()
    set(llama_dir ${KVASIR_LLAMA_DIR})
endif()
if(NOT EXISTS ${llama_dir}/ready)
    message(FATAL_ERROR "llama.cpp is not built in ${llama_dir}: run scripts/setup.sh first")
endif()

# Beside our programs, which look for them there: build/bin is complete, wherever it is copied to.
set(llama_bin ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_BUILD_RPATH_USE_ORIGIN ON)
file(GLOB llama_libraries ${llama_dir}/build/bin/*.so*)
list(FILTER llama_libraries EXCLUDE REGEX "bench-impl|completion-impl")
file(COPY ${llama_libraries} DESTINATION ${llama_bin})

function(kvasir_import name file)
    add_library(llama::${name} SHARED IMPORTED)
    set_target_properties(llama::${name} PROPERTIES IMPORTED_LOCATION ${llama_bin}/lib${file}.so
                                                    IMPORTED_NO_SONAME OFF)
    target_include_directories(llama::${name} INTERFACE ${llama_dir}/src/ggml/include ${llama_dir}/src/include)
endfunction()

kvasir_import(ggml-base ggml-base)
kvasir_import(ggml-cpu ggml-cpu)
kvasir_import(ggml ggml)
target_link_libraries(llama::ggml INTERFACE llama::ggml-cpu llama::ggml-base)
# ggml-backend-impl.h, ggml's internal header, for the backend; GGML_BACKEND_API_VERSION guards it.
target_include_directories(llama::ggml INTERFACE ${llama_dir}/src/ggml/src)
kvasir_import(llama llama)
target_link_libraries(llama::llama INTERFACE llama::ggml)
kvasir_import(mtmd mtmd)
kvasir_import(common llama-common)
kvasir_import(server llama-server-impl)
target_link_libraries(llama::server INTERFACE llama::common llama::mtmd llama::llama)
# arg.h, which checks llama-server's options.
target_include_directories(llama::server INTERFACE ${llama_dir}/src/common)
# The libraries name the place where they were built, not this one, for each other: so the program names them all.
target_link_options(llama::server INTERFACE LINKER:--no-as-needed)
# The tools that the tests compare with.
set(KVASIR_LLAMA_BIN ${llama_dir}/build/bin)
