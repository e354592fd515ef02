# cmake/msvc.cmake: flags for Microsoft's compiler, not tested yet (docs/install.md).
# The sources are UTF-8 and standard C++. /bigobj: large files need more sections than an object file has by default.
add_compile_options(/utf-8 /permissive- /EHsc /bigobj /Zc:__cplusplus /Zc:preprocessor)
add_compile_definitions(NOMINMAX WIN32_LEAN_AND_MEAN _CRT_SECURE_NO_WARNINGS _WIN32_WINNT=0x0A00)
set(CMAKE_MSVC_RUNTIME_LIBRARY MultiThreadedDLL)  # as in torch's binaries

# Disabled warnings: unused parameters, narrowing conversions, shadowed names, constant conditions, inlining.
set(OCL_WARNINGS /W4 /wd4100 /wd4127 /wd4244 /wd4267 /wd4456 /wd4457 /wd4458 /wd4459 /wd4710 /wd4711)
if(OCL_WERROR)
  list(APPEND OCL_WARNINGS /WX)
endif()
set(OCL_EVERY_CALL $<$<CONFIG:Release>:/Ob3>)
set(OCL_LAST_INCLUDE /external:I)
set(OCL_BUILD_ID /DEBUG /OPT:REF /OPT:ICF)  # build_id() of csrc/support reads the GUID that identifies the .pdb file
