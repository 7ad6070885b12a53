# The arithmetic's bits are defined operation by operation: the compiler must not fuse or reassociate.
target_compile_options(kvasir_portable PRIVATE -ffp-contract=off)
