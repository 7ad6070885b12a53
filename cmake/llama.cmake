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

set(llama_bin ${llama_dir}/build/bin)
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
kvasir_import(server llama-server-impl)
target_link_libraries(llama::server INTERFACE llama::llama)
file(GLOB llama_libraries ${llama_bin}/*.so)
# The tools that the tests compare with.
set(KVASIR_LLAMA_BIN ${llama_bin})
