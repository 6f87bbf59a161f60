# Debian 12's packages, all of them; `dev` names what to install.
find_package(fmt 9 REQUIRED)
find_package(nlohmann_json 3.11 REQUIRED)
find_package(CLI11 2.1 REQUIRED)
find_package(Threads REQUIRED)
find_package(ZLIB REQUIRED)
find_package(OpenSSL 3 REQUIRED COMPONENTS Crypto)
find_package(CURL 7.88 REQUIRED)
find_package(doctest 2.4 REQUIRED)

# dtrain itself links no shared library but libc, each costs about a millisecond of every start:
# fmt built from Debian's headers, yaml-cpp from its archive, libstdc++ statically.
add_library(dtrain_fmt STATIC ${CMAKE_CURRENT_LIST_DIR}/fmt_library.cpp)
find_library(DTRAIN_YAML_ARCHIVE NAMES libyaml-cpp.a REQUIRED)
add_library(dtrain_yaml STATIC IMPORTED)
set_target_properties(dtrain_yaml PROPERTIES IMPORTED_LOCATION ${DTRAIN_YAML_ARCHIVE})

find_library(DTRAIN_CRYPTO_ARCHIVE NAMES libcrypto.a REQUIRED)
add_library(dtrain_crypto STATIC IMPORTED)
set_target_properties(dtrain_crypto PROPERTIES IMPORTED_LOCATION ${DTRAIN_CRYPTO_ARCHIVE}
  INTERFACE_LINK_LIBRARIES "Threads::Threads;${CMAKE_DL_LIBS}")

find_library(DTRAIN_ZLIB_ARCHIVE NAMES libz.a REQUIRED)
add_library(dtrain_zlib STATIC IMPORTED)
set_target_properties(dtrain_zlib PROPERTIES IMPORTED_LOCATION ${DTRAIN_ZLIB_ARCHIVE})

find_library(DTRAIN_PUGIXML_ARCHIVE NAMES libpugixml.a REQUIRED)
add_library(dtrain_pugixml STATIC IMPORTED)
set_target_properties(dtrain_pugixml PROPERTIES IMPORTED_LOCATION ${DTRAIN_PUGIXML_ARCHIVE})

# Debian's oneDNN package asks for OpenCL's headers in its CMake file, which we have no use for.
find_library(DTRAIN_DNNL_LIBRARY NAMES dnnl REQUIRED)
find_path(DTRAIN_DNNL_INCLUDE NAMES oneapi/dnnl/dnnl.h REQUIRED)
add_library(dtrain_dnnl INTERFACE)
target_link_libraries(dtrain_dnnl INTERFACE ${DTRAIN_DNNL_LIBRARY})
target_include_directories(dtrain_dnnl SYSTEM INTERFACE ${DTRAIN_DNNL_INCLUDE})
