# cmake/aarch64.cmake: toolchain file: builds for 64-bit Arm on Linux with Debian's cross compiler, and runs the tests in QEMU.
# OCL_ARM_ROOT names a folder with unpacked packages of Debian for arm64 (scripts/arm_packages.sh).
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(target aarch64-linux-gnu)
find_program(ARM_CXX NAMES ${target}-g++ REQUIRED)
find_program(ARM_C NAMES ${target}-gcc REQUIRED)
find_program(QEMU NAMES qemu-aarch64 qemu-aarch64-static)
set(CMAKE_CXX_COMPILER ${ARM_CXX})
set(CMAKE_C_COMPILER ${ARM_C})
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES OCL_ARM_ROOT)
if(QEMU)
  set(CMAKE_CROSSCOMPILING_EMULATOR ${QEMU} -L ${OCL_ARM_ROOT})
endif()
# QEMU makes a fork of vfork(), so posix_spawn() does not report that there is no such program.
set(OCL_TEST_ARGUMENTS "-tce=a program that does not exist gives a reason" CACHE STRING "")

# Search libraries and headers only in the target's folders: those of this machine are for its own processor.
set(CMAKE_LIBRARY_ARCHITECTURE ${target})
set(CMAKE_FIND_ROOT_PATH ${OCL_ARM_ROOT} /usr/${target})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
