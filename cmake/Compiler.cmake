# One language level, one set of warnings, and the sanitizers that a preset asks for.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

set(DTRAIN_SANITIZE "" CACHE STRING "Sanitizers, as -fsanitize= takes them")
option(DTRAIN_FUZZ "Build the libFuzzer targets (clang)" OFF)

# Warnings are errors where CI compiles; a newer compiler's new warning stops nobody else.
option(DTRAIN_WERROR "Take warnings for errors" OFF)
add_compile_options(-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion)
if(DTRAIN_WERROR)
  add_compile_options(-Werror)
endif()
# Line tables are what a backtrace needs, and a quarter of the time that all of -g takes.
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g1 -DNDEBUG")
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12 reports these inside its own library's inlined code.
  add_compile_options(-Wno-restrict -Wno-stringop-overflow -Wno-array-bounds -Wno-maybe-uninitialized)
endif()

if(DTRAIN_SANITIZE)
  add_compile_options(-fsanitize=${DTRAIN_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all -O1)
  add_link_options(-fsanitize=${DTRAIN_SANITIZE})
  find_program(LLD ld.lld)
  if(LLD)
    add_link_options(-fuse-ld=lld)
  endif()
endif()

if(DTRAIN_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link) # coverage of the libraries, which guides libFuzzer
endif()

find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
endif()
