# `cpack -G DEB`, or ./dev package: what `cmake --install` gives, as a package of Debian's.
set(CPACK_PACKAGE_CONTACT "The dtrain developers <dtrain@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "ca-certificates, git, libcurl4t64 | libcurl4, openssh-client")
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "dataset-fashion-mnist, openmpi-bin, pdsh")
include(CPack)

# What the programs of ./dev package's tarball, and the trainer on hosts that it is sent to, are started by,
# on whatever glibc the host has.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64" AND NOT DTRAIN_SANITIZE)
  add_executable(dtrain-launcher cmake/portable/launcher.c)
  target_compile_options(dtrain-launcher PRIVATE -Os -fno-stack-protector -U_FORTIFY_SOURCE -fPIE)
  target_link_options(dtrain-launcher PRIVATE -nostartfiles -pie)
  install(TARGETS dtrain-launcher DESTINATION lib/dtrain)
endif()
