# Debian 12's packages, all of them; `dev` names what to install.
find_package(fmt 9 REQUIRED)
find_package(nlohmann_json 3.11 REQUIRED)
find_package(CLI11 2.1 REQUIRED)
find_package(Threads REQUIRED)
find_package(ZLIB REQUIRED)
find_package(OpenSSL 3 REQUIRED COMPONENTS Crypto)
find_package(CURL 7.88 REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(doctest 2.4 QUIET) # of the tests alone

# dtrain itself links no shared library but libc, each costs about a millisecond of every start.
# static_library(TARGET NAME [LIBRARIES...]): an archive of the system's, and what it needs.
function(static_library target name)
  find_library(DTRAIN_ARCHIVE_${name} NAMES lib${name}.a REQUIRED)
  add_library(${target} STATIC IMPORTED GLOBAL)
  set_target_properties(${target} PROPERTIES IMPORTED_LOCATION ${DTRAIN_ARCHIVE_${name}}
    INTERFACE_LINK_LIBRARIES "${ARGN}")
endfunction()

static_library(dtrain_yaml yaml-cpp)
static_library(dtrain_zlib z)
static_library(dtrain_pugixml pugixml)
static_library(dtrain_utf8proc utf8proc)

# OpenSSL's archive needs zlib and zstd where the distribution compiled it so.
pkg_check_modules(CRYPTO REQUIRED libcrypto)
list(REMOVE_ITEM CRYPTO_STATIC_LIBRARIES crypto dl pthread)
foreach(name IN LISTS CRYPTO_STATIC_LIBRARIES)
  find_library(DTRAIN_NEEDED_${name} NAMES lib${name}.a ${name} REQUIRED)
  list(APPEND crypto_needs ${DTRAIN_NEEDED_${name}})
endforeach()
static_library(dtrain_crypto crypto ${crypto_needs} Threads::Threads ${CMAKE_DL_LIBS})

# fmt: the package's archive, where it has one. Debian's has headers and a shared library only; the
# headers alone cost 4 s of every unit that formats, so fmt 9's are compiled once, here. fmt 10's headers
# can't be.
find_library(DTRAIN_ARCHIVE_fmt NAMES libfmt.a)
if(DTRAIN_ARCHIVE_fmt)
  static_library(dtrain_fmt fmt)
elseif(fmt_VERSION VERSION_LESS 10)
  add_library(dtrain_fmt STATIC ${CMAKE_CURRENT_LIST_DIR}/fmt_library.cpp)
else()
  add_library(dtrain_fmt INTERFACE)
  target_link_libraries(dtrain_fmt INTERFACE fmt::fmt-header-only)
endif()
