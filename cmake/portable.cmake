# The arithmetic's bits are defined operation by operation: the compiler must not fuse or reassociate.
target_compile_options(kvasir_portable PRIVATE -ffp-contract=off)
# Loops over rows are written for the vectoriser, which -O2 of GCC 12 uses only where it costs no code.
set(KVASIR_PORTABLE_LEVEL -O3 CACHE STRING "The compiler's optimisation of portable/1")
if(NOT KVASIR_SANITIZE)
    target_compile_options(kvasir_portable PRIVATE ${KVASIR_PORTABLE_LEVEL})
endif()
# Each instruction set in a file of its own; the choice is made at run time. Clang's AVX-512 goes with FMA, which
# -ffp-contract=off keeps unused. GCC 12 takes the undefined vectors of its own AVX-512 header for mistakes.
cmake_path(SET portable NORMALIZE ${CMAKE_CURRENT_LIST_DIR}/../src/portable)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    set_source_files_properties(${portable}/kernels_avx2.cpp PROPERTIES COMPILE_OPTIONS "-mavx2;-mf16c;-mno-fma")
    set(avx512 -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni -mf16c -mprefer-vector-width=512)
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
        list(APPEND avx512 -Wno-uninitialized -Wno-maybe-uninitialized)
    endif()
    set_source_files_properties(${portable}/kernels_avx512.cpp PROPERTIES COMPILE_OPTIONS "${avx512}")
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
    # A kernel whose pieces are calls keeps their vectors in memory, up to a third more instructions. GCC would stop
    # inlining once the file has grown by a share of its size.
    set(inline)
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
        set(inline --param=inline-unit-growth=1000 --param=large-function-growth=1000)
    endif()
    set_source_files_properties(${portable}/kernels_neon.cpp PROPERTIES COMPILE_OPTIONS "${inline}")
    set_source_files_properties(${portable}/kernels_neon_dot.cpp
                                PROPERTIES COMPILE_OPTIONS "${inline};-march=armv8.2-a+dotprod")
    set_source_files_properties(${portable}/kernels_neon_i8mm.cpp
                                PROPERTIES COMPILE_OPTIONS "${inline};-march=armv8.2-a+dotprod+i8mm")
endif()
