# Compiles several files as one, which takes a third of the time: the headers are read once.
# Names in anonymous namespaces must differ between the files of a library for it; that each file also
# compiles by itself is what `./dev lint` shows.
option(DTRAIN_UNITY "Compile files in batches" ON)

# unity(TARGET): batches of twelve, in the order in which the target has its files: folder by folder.
function(unity target)
  if(NOT DTRAIN_UNITY)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 12)
  # To clang a local name shadows one of another file of the batch too. To GCC neither shadows: it tells of
  # locals that hide locals, parameters and members.
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:Clang>:-Wno-shadow>)
  # In a batch every type of an anonymous namespace looks as if a header had it.
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
endfunction()
