include(GoogleTest)

# kvasir_library(NAME LINK …): the static library kvasir_NAME of all sources in src/NAME. A directory without sources
# yet gives an empty interface library.
function(kvasir_library name)
    cmake_parse_arguments(ARG "" "" "LINK" ${ARGN})
    file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${name}/*.cpp)
    if(sources)
        add_library(kvasir_${name} STATIC ${sources})
        target_link_libraries(kvasir_${name} PUBLIC kvasir_external ${ARG_LINK})
    else()
        add_library(kvasir_${name} INTERFACE)
        target_link_libraries(kvasir_${name} INTERFACE kvasir_external ${ARG_LINK})
    endif()
endfunction()

# kvasir_tests(NAME LINK …): the GoogleTest program NAME_tests of all *_test.cpp in tests/NAME.
function(kvasir_tests name)
    cmake_parse_arguments(ARG "" "" "LINK" ${ARGN})
    file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/${name}/*.cpp)
    if(NOT sources)
        return()
    endif()
    add_executable(${name}_tests ${sources})
    target_include_directories(${name}_tests PRIVATE ${CMAKE_SOURCE_DIR}/tests)
    target_link_libraries(${name}_tests PRIVATE ${ARG_LINK} GTest::gmock GTest::gtest_main)
    target_compile_definitions(${name}_tests PRIVATE KVASIR_MODELS="${CMAKE_SOURCE_DIR}/models"
                                                       KVASIR_LLAMA_BIN="${KVASIR_LLAMA_BIN}")
    gtest_discover_tests(${name}_tests DISCOVERY_MODE PRE_TEST PROPERTIES TIMEOUT 300)
endfunction()
