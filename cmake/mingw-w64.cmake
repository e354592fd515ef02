# cmake/mingw-w64.cmake: toolchain file: builds for Windows on Linux with mingw-w64, and runs the tests in Wine.
set(CMAKE_SYSTEM_NAME Windows)
set(CMAKE_SYSTEM_PROCESSOR x86_64)
set(target x86_64-w64-mingw32)
# The variant with POSIX threads has std::thread. Systems that have only this variant do not name it so.
find_program(MINGW_CXX NAMES ${target}-g++-posix ${target}-g++ REQUIRED)
find_program(MINGW_C NAMES ${target}-gcc-posix ${target}-gcc REQUIRED)
find_program(WINE NAMES wine wine64)
set(CMAKE_CXX_COMPILER ${MINGW_CXX})
set(CMAKE_C_COMPILER ${MINGW_C})
if(WINE)
  set(CMAKE_CROSSCOMPILING_EMULATOR ${WINE})
endif()

# Libraries and headers of this machine are none of the target's.
set(CMAKE_FIND_ROOT_PATH /usr/${target})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)

# Programs carry the compiler's libraries with them.
set(CMAKE_EXE_LINKER_FLAGS_INIT -static)
add_compile_definitions(_WIN32_WINNT=0x0A00)
