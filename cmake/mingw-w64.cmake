# cmake/mingw-w64.cmake: toolchain file: builds for Windows on Linux with mingw-w64, and runs the tests in Wine.
set(CMAKE_SYSTEM_NAME Windows)
set(CMAKE_SYSTEM_PROCESSOR x86_64)
set(target x86_64-w64-mingw32)
# std::thread needs the variant of the compiler with POSIX threads. Systems that have only this variant omit "-posix"
# from its name.
find_program(MINGW_CXX NAMES ${target}-g++-posix ${target}-g++ REQUIRED)
find_program(MINGW_C NAMES ${target}-gcc-posix ${target}-gcc REQUIRED)
find_program(WINE NAMES wine wine64)
set(CMAKE_CXX_COMPILER ${MINGW_CXX})
set(CMAKE_C_COMPILER ${MINGW_C})
if(WINE)
  set(CMAKE_CROSSCOMPILING_EMULATOR ${WINE})
endif()

# Search libraries and headers only in the target's folder: those of this machine are for Linux.
set(CMAKE_FIND_ROOT_PATH /usr/${target})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)

# Link the compiler's libraries statically, so that programs need no DLLs beside them.
set(CMAKE_EXE_LINKER_FLAGS_INIT -static)
set(CMAKE_SHARED_LINKER_FLAGS_INIT -static)
add_compile_definitions(_WIN32_WINNT=0x0A00)
